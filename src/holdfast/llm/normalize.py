"""Normalises text for comparison and storage."""

from __future__ import annotations

import re
import unicodedata

from holdfast.content import segment_text
from holdfast.llm.base import replace_surrogates

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_WORD = re.compile(r"[^\W_]+")
_SMALL = 3  # letters; most function words are not longer
_STEM = 5  # letters; inflection in most languages comes after these


def fold(text: str) -> str:
    """Return a form that is equal for texts which differ only in case, width and white space."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def to_single_line(text: str, limit: int) -> str:
    """Return the text on one line of at most `limit` characters that every database can store; idempotent."""
    return shorten(unicodedata.normalize("NFC", " ".join(_CONTROL.sub(" ", replace_surrogates(text)).split())), limit)


def shorten(text: str, limit: int) -> str:
    """Return at most the first `limit` characters, cut at the end of a word if one ends in their last third."""
    if len(text) <= limit:
        return text
    if "\ud800" <= text[limit - 1 : limit] <= "\udbff":  # do not split a surrogate pair
        limit -= 1
    head = text[:limit]
    if not text[limit].isspace():
        space = max(head.rfind(" "), head.rfind("\n"))
        head = head[:space] if space >= limit - limit // 3 else head
    return head.rstrip()


def extract_stems(text: str) -> list[str]:
    """Return the words of a text in order, cut to crude stems; bigrams for languages without spaces."""
    return [word[:_STEM] for word in _WORD.findall(segment_text(fold(text)))]


def is_significant(stem: str) -> bool:
    """Return whether a word carries meaning: it is long enough, a number, or of a script with short words."""
    return len(stem) > _SMALL or stem.isdigit() or not stem.isascii()
