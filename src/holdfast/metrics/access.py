"""Checks the token of `HOLDFAST_METRICS_TOKEN`."""

from __future__ import annotations

import hmac


def read_bearer(authorization: str) -> str | None:
    """Return what an `Authorization` header contains after `Bearer`."""
    scheme, _, given = authorization.partition(" ")
    return given.strip() if scheme.lower() == "bearer" else None


def has_metrics_token(authorization: str, token: str) -> bool:
    """Return whether an `Authorization` header contains this token. Without a token there is nothing to match."""
    given = read_bearer(authorization)
    return bool(token) and given is not None and hmac.compare_digest(given.encode(), token.encode())
