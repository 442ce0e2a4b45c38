"""Secrets in addresses: one function masks them wherever an address is shown or logged, another finds them.

An address can carry a secret as user information (`https://user:password@host/`) or as a parameter
(`?api-key=…`, `#token=…`). Secrets in a path cannot be recognised.
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
_AMBIGUOUS_NAMES = r"key|auth|sig|code|session|sid"  # often secrets, and often not: masked, but not refused
_SECRET_NAME = re.compile(_SECRET, re.IGNORECASE)
_MASKED_NAME = re.compile(rf"{_SECRET}|{_AMBIGUOUS_NAMES}", re.IGNORECASE)
_PARAMETER = re.compile(r"([?&;#]([^?&;#=\s\"'<>]+)=)[^&;#\s\"'<>]+")


def mask_secrets(text: str) -> str:
    """Replace the secrets in every address that the text contains."""
    if "://" not in text:
        return text
    text = _WEB_USER.sub(rf"\1{MASK}@", text)
    text = _PASSWORD.sub(rf"\1{MASK}@", text)
    return _PARAMETER.sub(_mask_parameter, text)


def _mask_parameter(match: re.Match[str]) -> str:
    """Mask the value of a parameter that may be a secret; its name may be written with escapes, such as `api%2Dkey`."""
    return f"{match[1]}{MASK}" if _MASKED_NAME.fullmatch(unquote_plus(match[2])) else match[0]


def find_secret(url: str) -> str | None:
    """Name the part of an address that holds a secret: `user`, or the name of a parameter; None if none does."""
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        return None  # it is no address, and is refused as such
    if "@" in parts.netloc:
        return "user"
    pairs = re.split(r"[&;?]", f"{parts.query}&{parts.fragment}")
    names = (unquote_plus(pair.partition("=")[0]) for pair in pairs if "=" in pair)
    return next((name for name in names if _SECRET_NAME.fullmatch(name)), None)
