"""The slots of a base itself: the kind of each is also the name of its owner in the base."""

from __future__ import annotations

BASE = "base"  # removes the base
CARDS = "cards"
ROLLOUT = "rollout"
