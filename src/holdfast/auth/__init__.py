"""Keys, what their holders may do, and idempotent requests."""

from holdfast.auth.idempotency import Answer, Fresh, InFlight, Mismatch, Repeats, Replay
from holdfast.auth.keys import Key
from holdfast.auth.principal import EVERYBODY_HERE, Caller, Scope

__all__ = [
    "EVERYBODY_HERE",
    "Answer",
    "Caller",
    "Fresh",
    "InFlight",
    "Key",
    "Mismatch",
    "Repeats",
    "Replay",
    "Scope",
]
