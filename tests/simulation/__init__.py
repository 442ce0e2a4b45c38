"""Deterministic simulation: production core, store, reconciler and executor; only time, chance, broker and provider
are ours. One seeded scheduler decides who runs, crashes, sleeps past its lease or is delivered twice.
"""
