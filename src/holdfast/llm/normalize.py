"""Text as it is compared and kept: without what only looks different, and within bounds."""

from __future__ import annotations

import re
import unicodedata

from holdfast.content.tokenize import segment_text
from holdfast.llm.base import replace_surrogates

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_WORD = re.compile(r"[^\W_]+")
_SMALL = 3  # letters of words that join others, in most languages written with letters
_STEM = 5  # letters after which words of most languages are bent


def fold(text: str) -> str:
    """Return what two texts share that differ only in case, width and white space."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def to_single_line(text: str, limit: int) -> str:
    """Return the text on one line, in at most `limit` characters, as every database can keep it; twice is as once."""
    return shorten(unicodedata.normalize("NFC", " ".join(_CONTROL.sub(" ", replace_surrogates(text)).split())), limit)


def shorten(text: str, limit: int) -> str:
    """Return the first `limit` characters at most, up to the end of a word if one ends in their last third."""
    if len(text) <= limit:
        return text
    if "\ud800" <= text[limit - 1 : limit] <= "\udbff":  # one character, written as two halves
        limit -= 1
    head = text[:limit]
    if not text[limit].isspace():
        space = max(head.rfind(" "), head.rfind("\n"))
        head = head[:space] if space >= limit - limit // 3 else head
    return head.rstrip()


def extract_stems(text: str) -> list[str]:
    """Return the words of a text in their order, cut where languages bend them; of Chinese and its like, pairs."""
    return [word[:_STEM] for word in _WORD.findall(segment_text(fold(text)))]


def is_significant(stem: str) -> bool:
    """Tell whether a word says something alone: it is not small, or is a number, or of a script with short words."""
    return len(stem) > _SMALL or stem.isdigit() or not stem.isascii()
