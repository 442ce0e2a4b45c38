"""Signatures as receivers expect them: https://www.standardwebhooks.com, HMAC-SHA256 over `id.timestamp.body`."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING

from holdfast.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

PREFIX = "whsec_"
SECRET_BYTES = 32
MIN_SECRET_BYTES, MAX_SECRET_BYTES = 24, 64  # bytes of a secret that somebody brings along


def new_secret() -> str:
    """Make a secret that nobody can guess."""
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def new_message_id() -> str:
    """Make the id by which a receiver knows a message again."""
    return f"msg_{secrets.token_hex(16)}"


def check_secret(secret: str) -> str:
    """Return a secret that somebody brings along, or refuse it."""
    try:
        key = _decode_secret(secret) if secret.startswith(PREFIX) else b""
    except (ValueError, binascii.Error):
        key = b""
    if not MIN_SECRET_BYTES <= len(key) <= MAX_SECRET_BYTES:
        raise BadRequest(
            f"A secret of a webhook is {PREFIX} and {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} random bytes "
            "in base64. "
            "Leave it out, and one is made.",
            "webhook_secret",
        )
    return secret


def sign(keys: Iterable[str], message: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the headers that prove where a message comes from; each live secret signs."""
    signed = b".".join((message.encode(), str(timestamp).encode(), body))
    signatures = [
        "v1," + base64.b64encode(hmac.new(_decode_secret(secret), signed, hashlib.sha256).digest()).decode()
        for secret in keys
    ]
    return {"webhook-id": message, "webhook-timestamp": str(timestamp), "webhook-signature": " ".join(signatures)}


def _decode_secret(secret: str) -> bytes:
    return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
