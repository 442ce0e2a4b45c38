"""Things that move: workers and the reconciler, with thin loops around a single step."""
