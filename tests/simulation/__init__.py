"""Deterministic simulation of the production core, store, reconciler and executor.

Only time, randomness, broker and provider are simulated. One seeded scheduler decides which process runs next, crashes,
sleeps past its lease or receives a message twice.
"""
