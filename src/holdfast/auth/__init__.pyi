from .idempotency import FirstRequest, IdempotencyStore, InFlight, Mismatch, Replay, StoredResponse
from .keys import StoredKey
from .principal import KEYLESS_CALLER, Caller, Scope

__all__ = [
    "KEYLESS_CALLER",
    "Caller",
    "FirstRequest",
    "IdempotencyStore",
    "InFlight",
    "Mismatch",
    "Replay",
    "Scope",
    "StoredKey",
    "StoredResponse",
]
