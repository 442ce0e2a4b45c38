"""Compares every store with what should be there, and repairs it."""
