"""Mutation checks: each guard removed in turn. A removal that nothing notices is a promise without a test."""
