"""Cuts text into the words that full text search knows, in the same way for every database.

The tokenizers of SQLite and PostgreSQL find words between spaces, and Chinese, Japanese and Korean have few. So each
run of their characters becomes its overlapping pairs, in the index as in the query: no dictionary, no language to
guess, and every word of two characters or more is found wherever it stands. The last character of a run follows alone,
so that each character begins exactly one token and a query of one character can ask for what begins with it.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

TOKENIZER_VERSION = 1  # rises when the same text is cut differently: then it must be indexed again
MAX_QUERY_TERMS = 256  # terms of a query; what a person asks has fewer, and a pasted book must not stop the search

_HAN = "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KANA = "\u3041-\u3096\u3099-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
_HANGUL = "\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7fb"
_SPACELESS = f"{_HAN}{_KANA}{_HANGUL}"
_VARIANTS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"  # the same character in another drawing
_WIDE = "\uff01-\uff5e\uff66-\uffdc"  # letters as wide as characters, and characters as narrow as letters

_RUN = re.compile(f"[{_SPACELESS}{_WIDE}][{_SPACELESS}{_WIDE}{_VARIANTS}]*")
_VARIANT = re.compile(f"[{_VARIANTS}]+")
_PART = re.compile(f"[{_SPACELESS}]+|[^{_SPACELESS}]+")
_SPACELESS_ONE = re.compile(f"[{_SPACELESS}]")
_WORD = re.compile(f"[{_SPACELESS}]+|(?:[^\\W_{_SPACELESS}][\u0300-\u036f]*)+")
_ASCII_WORD = re.compile(r"[a-z0-9]+")


class Term(NamedTuple):
    """A word of a query: letters and digits alone, so it can stand between quotes in any query language."""

    text: str
    prefix: bool = False  # whether it asks for every token that begins so


def uses_stemming(languages: Collection[str]) -> bool:
    """Tell whether words are stemmed: as English ones, where a text may be English. No language stands for any."""
    return not languages or "en" in languages


def segment_text(text: str) -> str:
    """Return the text as it is indexed: pairs of characters where a language writes no spaces, all else as it is.

    Wide letters become plain ones and narrow kana become usual ones. A text without such characters is returned
    unchanged, and quickly.
    """
    return text if text.isascii() else _RUN.sub(_cut, text)


def parse_query_terms(query: str) -> list[Term]:
    """Return the words to look for, each once, in the order they first stand in; none if the query has no word.

    Any text may be asked. A term has no quote, operator or zero byte in it, so quoted it is never a syntax error. At
    most `MOST` terms are returned, the first ones.
    """
    found: dict[Term, None] = {}
    for word in _WORD.findall(_RUN.sub(_normalize_run, query)):
        if not _SPACELESS_ONE.match(word):
            found.setdefault(Term(word.lower()))
        elif len(word) == 1:
            found.setdefault(Term(word, prefix=True))
        else:
            found.update(dict.fromkeys(map(Term, _pairs(word))))
    return list(found)[:MAX_QUERY_TERMS]


def split_words(text: str) -> list[str]:
    """Return the words of a text in their order, in lower case; of a language without spaces each character.

    These are what names are compared by: a name stands in a text if its words follow each other there.
    """
    if text.isascii():  # the same words, sooner
        return _ASCII_WORD.findall(text.lower())
    found = _WORD.findall(_RUN.sub(_normalize_run, text).lower())
    return [part for word in found for part in (word if _SPACELESS_ONE.match(word) else (word,))]


def _normalize_run(run: re.Match[str]) -> str:
    return unicodedata.normalize("NFKC", _VARIANT.sub("", run.group()))


def _cut(run: re.Match[str]) -> str:
    """Return a run as it is indexed; plain letters stay joined to those around the run."""
    parts = _PART.findall(_normalize_run(run))
    return "".join(f" {' '.join((*_pairs(part), part[-1]))} " if _SPACELESS_ONE.match(part) else part for part in parts)


def _pairs(run: str) -> list[str]:
    return [run[place : place + 2] for place in range(len(run) - 1)]
