"""Signs messages by https://www.standardwebhooks.com: HMAC-SHA256 over `id.timestamp.body`."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

PREFIX = "whsec_"
SECRET_BYTES = 32


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def new_message_id() -> str:
    """Return a random id; receivers recognise a repeated message by it."""
    return f"msg_{secrets.token_hex(16)}"


def sign(secrets_: Iterable[str], message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the headers of a message, with one signature for each secret."""
    signed = b".".join((message_id.encode(), str(timestamp).encode(), body))
    signatures = [
        "v1," + base64.b64encode(hmac.new(_decode_secret(secret), signed, hashlib.sha256).digest()).decode()
        for secret in secrets_
    ]
    return {"webhook-id": message_id, "webhook-timestamp": str(timestamp), "webhook-signature": " ".join(signatures)}


def _decode_secret(secret: str) -> bytes:
    return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
