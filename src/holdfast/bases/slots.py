"""The slots of a base itself: the kind of each is also the name of its owner in the base."""

from __future__ import annotations

CARDS = "cards"
ROLLOUT = "rollout"
