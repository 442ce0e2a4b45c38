"""Compares each store with what should be there, and repairs it."""
