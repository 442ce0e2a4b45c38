"""Highlights the words of a query in a passage, also in languages without spaces. `highlight.js` does the same."""

from __future__ import annotations

import re
from typing import NamedTuple

SHORT_WORD = 3  # up to this length a word may be an article or a preposition
_SPACELESS = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_LETTER = f"[^\\W_{_SPACELESS}]"
_WORD = re.compile(f"[{_SPACELESS}]+|{_LETTER}+")
_STARTS_SPACELESS = re.compile(f"[{_SPACELESS}]")


class TextSegment(NamedTuple):
    text: str
    highlighted: bool = False


def highlight_words(text: str, query: str) -> list[TextSegment]:
    """Split a text at the words of a query. A longer word also matches with an ending, such as a plural."""
    words = _WORD.findall(query)
    significant = [
        one for one in words if len(one) > SHORT_WORD or _STARTS_SPACELESS.match(one) or not one.islower()
    ] or words
    found = sorted({pattern for one in significant for pattern in _word_patterns(one)}, key=len, reverse=True)
    if not found:
        return [TextSegment(text)]
    parts = re.split(f"((?:{'|'.join(found)})+)", text, flags=re.IGNORECASE)
    return [TextSegment(one, highlighted=bool(place % 2)) for place, one in enumerate(parts) if one]


def _word_patterns(word: str) -> list[str]:
    if _STARTS_SPACELESS.match(word):
        return [word, *(word[place : place + 2] for place in range(len(word) - 1))]
    end = f"{_LETTER}*" if len(word) > SHORT_WORD else f"(?!{_LETTER})"
    return [f"(?<!{_LETTER}){re.escape(word)}{end}"]
