"""The catalogue: every text that Holdfast shows to people, by key, in English and Chinese.

In `texts/` a file is a subject, a line is a text, a column is a language:

    "problem.unknown_base": ["No base named {base!r}.", "…"]

Errors, stored faults, replies and findings carry a code and parameters, so each interface can format them in the
language of its reader:

    format_message("problem.unknown_base", {"base": "handbook"})

The module reads the files when a text is first needed.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

LANGUAGES = {"en": "English", "zh": "简体中文"}
DEFAULT_LANGUAGE = "en"
UNKNOWN_VALUE = "…"  # for a parameter that an old row or a plug-in did not store
REASON = "why"  # the parameter whose value is the key of a text, below `why.`
CAUSE = "cause"  # the parameter whose value is the code of another problem; its text has the same parameters
MESSAGE = "message"  # the ready text of a problem, from a plug-in or from an old row
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


class Translations:
    """The texts of one language."""

    def __init__(self, language: str, texts: Mapping[str, str]) -> None:
        self.language = language
        self.texts = texts

    def __call__(self, key: str, /, **values: object) -> str:
        """Return a text with its placeholders filled. A missing text is its key; a test finds those."""
        return fill_placeholders(self.texts.get(key, key), values)

    def get(self, key: str, otherwise: str) -> str:
        """Return a text, or `otherwise` if the catalogue has none: for codes of plug-ins."""
        return self.texts.get(key, otherwise)

    def explain_cause(self, params: Mapping[str, object]) -> str:
        """Return the text of the problem that is the cause of another one; see `make_cause_params`."""
        cause = str(params[CAUSE])
        text = self.texts.get(f"problem.{cause}")
        return cause if text is None else fill_placeholders(text, params)


def fill_placeholders(text: str, values: Mapping[str, object]) -> str:
    return _PLACEHOLDER.sub(lambda found: str(values.get(found[1], UNKNOWN_VALUE)), text)


def format_message(key: str, params: Mapping[str, object], *, otherwise: str = "") -> str:
    """Return the English text of a key; `otherwise`, or the key itself, if the catalogue has none."""
    english = translations_for(DEFAULT_LANGUAGE)
    if key not in english.texts:
        return otherwise or key
    shown = dict(params)
    if REASON in params:
        shown[REASON] = english.get(f"why.{params[REASON]}", str(params[REASON]))
    if CAUSE in params:
        shown[CAUSE] = params.get(MESSAGE) or english.explain_cause(shown)
    return english(key, **shown)


def make_cause_params(code: str, params: Mapping[str, object]) -> dict[str, object]:
    """Return the parameters of an error that another problem caused.

    In the text of the error, `{cause}` becomes the text of the problem in the language of the reader. A problem whose
    code is not in the catalogue comes from a plug-in and has only its own message.

    Example:
        raise BadArchive("archive_settings", **make_cause_params("no_indexes", {}))
    """
    known = f"problem.{code}" in load_catalogue()
    return {**params, CAUSE: code if known else params.get(MESSAGE, code)}


@cache
def translations_for(language: str) -> Translations:
    return Translations(language, {key: texts[language] for key, texts in load_catalogue().items()})


@cache
def load_catalogue() -> dict[str, dict[str, str]]:
    """Read all texts, by key and language."""
    found: dict[str, dict[str, str]] = {}
    for file in sorted(files("holdfast.messages").joinpath("texts").iterdir(), key=lambda one: one.name):
        for key, texts in json.loads(file.read_text("utf-8")).items():
            if key in found:
                raise ValueError(f"The text {key} is in the catalogue twice, again in {file.name}.")
            found[key] = dict(zip(LANGUAGES, texts, strict=True))
    return found
