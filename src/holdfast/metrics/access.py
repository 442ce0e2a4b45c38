"""Checks the token of `HOLDFAST_METRICS_TOKEN`."""

from __future__ import annotations

import hmac


def has_metrics_token(authorization: str, token: str) -> bool:
    """Return whether an `Authorization` header contains this token. Without a token there is nothing to match."""
    scheme, _, given = authorization.partition(" ")
    return bool(token) and scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())
