"""Finds and masks secrets in URLs.

A URL can contain a secret as user information (`https://user:password@host/`) or as a parameter (`?api-key=…`,
`#token=…`). Secrets in a path cannot be recognised.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_plus, urlsplit

MASK = "********"

# The whole user information of a web URL: a user name alone can be an access token.
_WEB_USER = re.compile(r"(https?://)[^/?#\s\"'<>]*@", re.IGNORECASE)
# In other URLs, such as database URLs, only the password. It may contain a slash.
_PASSWORD = re.compile(r"((?!https?:)\b[a-z][\w+.-]*://[^/:@\s]*:)(?:[^/?#\s]*|[^@\s]*)@", re.IGNORECASE)
_KEYS = r"(?:api|access|account|auth|private|secret|shared|subscription|functions)[-_.]?key(?:[-_.]?id)?"
_WORDS = r"pass|passwd|password|passphrase|pwd|secret|token|credentials?|jwt|bearer"
_SECRET = rf"(?:[\w.%-]*[-_.])?(?:{_KEYS}|{_WORDS})|[\w.%-]*(?:token|secret|password|apikey|accesskey|signature)"
_AMBIGUOUS_NAMES = r"key|auth|sig|code|session|sid"  # not always secrets: masked, but accepted
_SECRET_NAME = re.compile(_SECRET, re.IGNORECASE)
_MASKED_NAME = re.compile(rf"{_SECRET}|{_AMBIGUOUS_NAMES}", re.IGNORECASE)
_PARAMETER = re.compile(r"([?&;#]([^?&;#=\s\"'<>]+)=)[^&;#\s\"'<>]+")


def mask_secrets(text: str) -> str:
    """Replace the secrets in all URLs that a text contains."""
    if "://" not in text:
        return text
    text = _WEB_USER.sub(rf"\1{MASK}@", text)
    text = _PASSWORD.sub(rf"\1{MASK}@", text)
    return _PARAMETER.sub(_mask_parameter, text)


def _mask_parameter(match: re.Match[str]) -> str:
    """Mask the value if the name suggests a secret. The name may be percent-encoded, such as `api%2Dkey`."""
    return f"{match[1]}{MASK}" if _MASKED_NAME.fullmatch(unquote_plus(match[2])) else match[0]


def find_secret(url: str) -> str | None:
    """Return where a URL contains a secret: "user" or the name of a parameter. None if it contains none."""
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        return None  # not a URL; the caller rejects it for that
    if "@" in parts.netloc:
        return "user"
    pairs = re.split(r"[&;?]", f"{parts.query}&{parts.fragment}")
    names = (unquote_plus(pair.partition("=")[0]) for pair in pairs if "=" in pair)
    return next((name for name in names if _SECRET_NAME.fullmatch(name)), None)
