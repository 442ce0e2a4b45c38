"""Mutation testing: each guard is removed in turn. A removal that no test detects shows an untested guarantee."""
