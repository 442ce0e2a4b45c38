"""Texts of the page in every language. In the catalogue a file is a page, a line is a text, a column is a language."""

from __future__ import annotations

import json
import re
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

LANGUAGES = {"en": "English", "zh": "简体中文"}
DEFAULT_LANGUAGE = "en"
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


class Translations:
    def __init__(self, language: str, texts: Mapping[str, str]) -> None:
        self.language = language
        self.texts = texts

    def __call__(self, key: str, /, **values: object) -> str:
        """Return a text with its placeholders filled. A missing text is its key; a test finds those."""
        return _PLACEHOLDER.sub(lambda hole: str(values.get(hole[1], hole[0])), self.texts.get(key, key))

    def explain(self, key: str, message: str, /, **values: object) -> str:
        """Return the text for a code of the API, or the given message. Placeholders without a value become "…"."""
        text = self.texts.get(key, "{message}")
        return _PLACEHOLDER.sub(lambda hole: message if hole[1] == "message" else str(values.get(hole[1], "…")), text)

    def get(self, key: str, otherwise: str) -> str:
        """Return a text, or `otherwise` if the catalogue has none: for codes of plug-ins."""
        return self.texts.get(key, otherwise)


@cache
def load_catalogue() -> dict[str, dict[str, str]]:
    """Read all texts, by key and language."""
    found: dict[str, dict[str, str]] = {}
    for file in sorted(files("holdfast.web").joinpath("words").iterdir(), key=lambda one: one.name):
        for key, texts in json.loads(file.read_text("utf-8")).items():
            if key in found:
                raise ValueError(f"The text {key} is in the catalogue twice, again in {file.name}.")
            found[key] = dict(zip(LANGUAGES, texts, strict=True))
    return found


@cache
def translations_for(language: str) -> Translations:
    return Translations(language, {key: texts[language] for key, texts in load_catalogue().items()})


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
