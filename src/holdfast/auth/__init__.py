"""API keys, the rights of callers, and idempotent requests."""

from holdfast.auth.idempotency import FirstRequest, IdempotencyStore, InFlight, Mismatch, Replay, StoredResponse
from holdfast.auth.keys import StoredKey
from holdfast.auth.principal import KEYLESS_CALLER, Caller, Scope

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
