"""Splits text into the words of full-text search, identically for every database.

The tokenizers of SQLite and PostgreSQL split at spaces, and Chinese, Japanese and Korean have few. So each run of their
characters becomes overlapping pairs (bigrams), in the index and in the query. This needs no dictionary and no language
detection, and finds every word of two or more characters. The last character of a run follows alone. So each character
begins exactly one token, and a query of one character can be a prefix search.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

TOKENIZER_VERSION = 1  # increase when the same text gives other tokens, so that it is indexed again
MAX_QUERY_TERMS = 256  # per query; a pasted book must not block the search

_HAN = "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KANA = "\u3041-\u3096\u3099-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
_HANGUL = "\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7fb"
_SPACELESS = f"{_HAN}{_KANA}{_HANGUL}"
_VARIANTS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"  # select another glyph of the same character
_WIDE = "\uff01-\uff5e\uff66-\uffdc"  # full-width letters and half-width kana and hangul

_RUN = re.compile(f"[{_SPACELESS}{_WIDE}][{_SPACELESS}{_WIDE}{_VARIANTS}]*")
_VARIANT = re.compile(f"[{_VARIANTS}]+")
_PART = re.compile(f"[{_SPACELESS}]+|[^{_SPACELESS}]+")
_SPACELESS_ONE = re.compile(f"[{_SPACELESS}]")
_WORD = re.compile(f"[{_SPACELESS}]+|(?:[^\\W_{_SPACELESS}][\u0300-\u036f]*)+")
_ASCII_WORD = re.compile(r"[a-z0-9]+")


class Term(NamedTuple):
    """A word of a query. It has only letters and digits, so it can be quoted in any query language."""

    text: str
    prefix: bool = False  # match every token that begins with `text`


def uses_stemming(languages: Collection[str]) -> bool:
    """Return whether words are stemmed as English. No language means any language, so English is possible."""
    return not languages or "en" in languages


def segment_text(text: str) -> str:
    """Return the text to index: bigrams for languages without spaces, everything else unchanged.

        segment_text("see 東京都") == "see  東京 京都 都 "

    Full-width letters and half-width kana are normalised. ASCII text is returned at once.
    """
    return text if text.isascii() else _RUN.sub(_cut, text)


def parse_query_terms(query: str) -> list[Term]:
    """Return the terms of a query, each once, in order of appearance; at most `MAX_QUERY_TERMS`.

    A query may be any text. A term has no quotes, operators or zero bytes, so a quoted term is never a syntax error.
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
    """Return the words of a text in order and in lower case; for languages without spaces, each character.

    Names are compared by these words: a text mentions a name if it has the words of the name in sequence.
    """
    if text.isascii():  # the same words, faster
        return _ASCII_WORD.findall(text.lower())
    found = _WORD.findall(_RUN.sub(_normalize_run, text).lower())
    return [part for word in found for part in (word if _SPACELESS_ONE.match(word) else (word,))]


def _normalize_run(run: re.Match[str]) -> str:
    return unicodedata.normalize("NFKC", _VARIANT.sub("", run.group()))


def _cut(run: re.Match[str]) -> str:
    """Return the bigrams of a run; letters that normalisation made plain stay joined to the letters around the run."""
    parts = _PART.findall(_normalize_run(run))
    return "".join(f" {' '.join((*_pairs(part), part[-1]))} " if _SPACELESS_ONE.match(part) else part for part in parts)


def _pairs(run: str) -> list[str]:
    return [run[place : place + 2] for place in range(len(run) - 1)]
