"""The language of a page, and the texts of the catalogue for its scripts."""

from __future__ import annotations

import json
from functools import cache
from hashlib import sha256

from holdfast.messages import DEFAULT_LANGUAGE, LANGUAGES, translations_for


def choose_language(chosen: str | None, accepted: str) -> str:
    """Return the language of the cookie, else the first supported one of `Accept-Language`, else the default."""
    if chosen in LANGUAGES:
        return str(chosen)
    for part in accepted.split(","):
        language = part.partition(";")[0].strip().lower().partition("-")[0]
        if language in LANGUAGES:
            return language
    return DEFAULT_LANGUAGE


@cache
def translations_url(language: str) -> str:
    """Return the address of the texts for scripts. It contains their hash, so browsers may cache it for ever."""
    return f"/words/{language}.json?v={sha256(encode_translations(language)).hexdigest()[:12]}"


@cache
def encode_translations(language: str) -> bytes:
    return json.dumps(translations_for(language).texts, ensure_ascii=False, separators=(",", ":")).encode()
