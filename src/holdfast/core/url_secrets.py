"""Secrets in addresses: one function masks them wherever an address is shown or logged, another finds them.

An address can carry a secret as user information (`https://user:password@host/`) or as a query parameter
(`?api-key=…`). Secrets in a path cannot be recognised.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_plus, urlsplit

MASK = "********"

# Everything before the last @ of the authority of a web address; a name alone can be an access token.
_WEB_USER = re.compile(r"(https?://)[^/?#\s\"'<>]*@", re.IGNORECASE)
# Of any other address, such as that of a database, only the password; it may contain a slash.
_PASSWORD = re.compile(r"((?!https?:)\b[a-z][\w+.-]*://[^/:@\s]*:)(?:[^/?#\s]*|[^@\s]*)@", re.IGNORECASE)
_KEYS = r"(?:api|access|account|auth|private|secret|shared|subscription|functions)[-_.]?key(?:[-_.]?id)?"
_WORDS = r"pass|passwd|password|passphrase|pwd|secret|token|credentials?|jwt|bearer"
_SECRET = rf"(?:[\w.%-]*[-_.])?(?:{_KEYS}|{_WORDS})|[\w.%-]*(?:token|secret|password|apikey|accesskey|signature)"
_MAYBE = r"key|auth|sig|code|session|sid"  # often secrets, and often not: masked, but not refused
_SECRET_NAME = re.compile(_SECRET, re.IGNORECASE)
_PARAMETER = re.compile(rf"([?&;#](?:{_SECRET}|{_MAYBE})=)[^&;#\s\"'<>]*", re.IGNORECASE)


def masked(text: str) -> str:
    """Replace the secrets in every address that the text contains."""
    if "://" not in text:
        return text
    text = _WEB_USER.sub(rf"\1{MASK}@", text)
    text = _PASSWORD.sub(rf"\1{MASK}@", text)
    return _PARAMETER.sub(rf"\1{MASK}", text)


def secret_in(url: str) -> str | None:
    """Name the part of an address that holds a secret: `user`, or the name of a query parameter; None if none does."""
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        return None  # it is no address, and is refused as such
    if "@" in parts.netloc:
        return "user"
    names = (unquote_plus(pair.partition("=")[0]) for pair in re.split(r"[&;]", parts.query))
    return next((name for name in names if _SECRET_NAME.fullmatch(name)), None)
