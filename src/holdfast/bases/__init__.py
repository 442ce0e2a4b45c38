"""Bases: settings, rollouts, study cards, archives."""
