"""Finds names in a text without a language model, and mentions of the titles of a base.

Rules recognise these names: capitalised words, identifiers, text in quotes, links, bold or code marks, and foreign
names in katakana. Rules cannot recognise names in Han characters or in lower case; if they are titles, `TitleMatcher`
finds them word by word. A text *defines* its title, its headings, and the name it begins with if it explains that
name: "Ada Lovelace (1815-1852) was ...". Two spellings are the same name if their keys are equal.

The names and definitions of a text depend on this text alone, not on the order in which documents are added.
"""
# ruff: noqa: RUF001  (Chinese and Japanese quotes and commas are intended)

from __future__ import annotations

import re
import unicodedata
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from holdfast.content.blocks import BlockKind, parse_blocks
from holdfast.content.tokenize import split_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NAMES_VERSION = 1  # increase when the same text gives other names, so that graphs are rebuilt
MAX_NAME_WORDS = 12  # a longer title is a sentence, which only a quotation repeats
MAX_NAME_CHARACTERS = 30  # the same for scripts in which each character counts as a word
MAX_NAMES = 128  # per text; a list of thousands of names is not about any of them

_ACCENTS = re.compile("[\u0300-\u036f]+")
# Not names on their own: words that begin sentences or join names, months and days.
_COMMON_WORDS = frozenset(
    re.findall(
        r"[a-z]+",
        """a about above according after again all also although among an and another any are as at because been before
    being below between both but by can could did do does during each early either eight even every few first five for
    four from further given had has have he her here hers him his how however i if in including instead into is it its
    itself just last later less like many may more most much must my near neither next nine no nor not note now of off
    on once one only or other others our over own perhaps second see seven several she should since six so some such
    ten than that the their them then there therefore these they third this those three through thus to together two
    under unless until up upon us use using very was we were what when where whether which while who whom whose why
    will with within without would yes yet you your january february march april june july august september october
    november december monday tuesday wednesday thursday friday saturday sunday today tomorrow yesterday""",
    )
)
_ARTICLES = ("the ", "a ", "an ")

_UPPER = "A-ZÀ-ÖØ-ÞĀĂĄĆČĎĐĒĖĘĚĞĢĪĮİĶĹĻĽŁŃŅŇŌŐŒŔŘŚŞŠŢŤŪŮŰŲŹŻŽΑ-ΩА-ЯЁІЇЄ"
_LETTER = "A-Za-z0-9À-ÖØ-öø-ɏͰ-ϿЀ-ӿ"
_WORD = rf"[{_UPPER}](?:[{_LETTER}'’&.-]*[{_LETTER}])?"
_BETWEEN = "of|the|de|da|di|du|del|della|der|den|des|la|le|van|von|y|bin|al|el|for|&"
_NAME = re.compile(
    rf"(?<![{_LETTER}]){_WORD}(?:[ \t](?:(?:{_BETWEEN})[ \t]){{0,2}}(?:{_WORD}|[0-9][{_LETTER}.-]*[{_LETTER}]))*"
)
_IDENTIFIER = re.compile(
    r"\b(?=[A-Za-z]+[A-Z0-9_.:-])"  # most words end here
    r"(?:[a-z]\w*(?:(?:\.|::)[a-z_]\w*)+|[A-Za-z]\w*(?:::\w+)+|[A-Za-z0-9]+(?:_[A-Za-z0-9]+)+"
    r"|[a-z]+[A-Z][A-Za-z0-9]*|[A-Za-z]+-?[0-9]+[A-Za-z0-9]*\b)",
    re.ASCII,
)
_MARKED = re.compile(
    r"`([^`\n]{2,60})`|\[\[([^][|\n]{2,80})|\[([^][\n]{2,80})\](?=[(\[])|\*\*([^*\n]{2,60})\*\*"
    r"|\"([^\"\n]{2,60})\"|“([^”\n]{2,60})”|《([^》\n]{1,40})》|「([^」\n]{2,30})」|『([^』\n]{2,40})』|【([^】\n]{2,30})】"
)
_KATAKANA = re.compile(r"[ァ-ヺー]{3,}(?:[・＝][ァ-ヺー]+)*")
_ADDRESS = re.compile(r"(?<=\]\()[^)\s]+|\b(?:https?|ftp|file)://\S+")
_BEFORE_SENTENCE = " \t\"“'(*_>#-"
_ASIDE = re.compile(r"\s*(?:\([^)]*\)|（[^）]*）|\[[^]]*\])\s*")
_MARKS = "#*_` \t\r\n\"'“(《「『【"
_EXPLAINED = re.compile(r"[\"”'’*_`]*\s*(?:\(|,|[-–—] |(?:is|was|are|were|ist|war|sind|est|était|es|era|è)\b)")
_EXPLAINED_SPACELESS = re.compile(
    r"([㐀-鿿豈-﫿ァ-ヺー・々0-9A-Za-z]{2,16}?)[》」』】\"]?(?:[（(]|，?[是又]|、|とは|は、)"
)


class Name(NamedTuple):
    """A name in a text: its key, and its first spelling."""

    key: str
    text: str


class DefinitionOrigin(StrEnum):
    """Where a text defines a name."""

    TITLE = "title"  # the title of the document or a heading
    OPENING = "opening"  # the first words of the document, which goes on to explain them


class Definition(NamedTuple):
    key: str
    text: str
    origin: DefinitionOrigin


def is_found_by_words(key: str, origin: str) -> bool:
    """Return whether a definition belongs in `TitleMatcher`, because rules would miss some mentions of it."""
    return origin == DefinitionOrigin.TITLE or not key.isascii()


def name_key(name: str) -> str:
    """Return the key that all spellings of a name share; empty if the name has no words, or too many.

    Example: `name_key("The Café Müller") == "cafe muller"`
    """
    words = split_key_words(name)
    key = " ".join(words)
    if len(words) > (MAX_NAME_WORDS if key.isascii() else MAX_NAME_CHARACTERS):
        return ""
    return next((key[len(article) :] for article in _ARTICLES if key.startswith(article)), key)


def split_key_words(text: str) -> list[str]:
    """Return the words of a text as they appear in keys, for `TitleMatcher.find`."""
    if text.isascii():
        return split_words(text)
    return split_words(unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", text))))


def find_names(text: str) -> list[Name]:
    """Return the names in a text, each key once, in order of appearance; at most `MAX_NAMES`."""
    found: dict[str, Name] = {}
    if "](" in text or "://" in text:
        text = _ADDRESS.sub(" ", text)
    for _, written in sorted(_find_candidates(text)):
        key = name_key(written)
        if _is_meaningful(key):
            found.setdefault(key, Name(key, written))
    return list(found.values())[:MAX_NAMES]


def find_definitions(text: str, *, title: str = "", first: bool = False) -> list[Definition]:
    """Return the names that a chunk defines, each key once.

    These are the headings in its text and, in the first chunk of a document, the title and the opening name. A title or
    heading also counts without its brackets: "Mercury (planet)" defines "Mercury", too.
    """
    parts = list(parse_blocks(text))
    headings = [part.title for part in parts if part.kind is BlockKind.HEADING and part.title]
    found: dict[str, Definition] = {}
    for heading in ([title] if first else []) + headings:
        for written in (heading, _ASIDE.sub(" ", heading).strip()):
            _define(found, written, DefinitionOrigin.TITLE)
    if first:
        prose = next((part for part in parts if part.kind is BlockKind.PROSE), None)
        _define(found, _opening(text[prose.start : prose.end]) if prose else "", DefinitionOrigin.OPENING)
    return list(found.values())


class TitleMatcher:
    """Finds all defined names in a text in one pass.

    Example::

        titles = TitleMatcher()
        titles.add(name_key("Paris Hilton"))
        titles.find(split_key_words("I met Paris Hilton")) == ["paris hilton"]
    """

    def __init__(self) -> None:
        self._keys: set[str] = set()
        # first two words -> how many words the keys with this start have, highest first
        self._lengths: dict[str, tuple[int, ...]] = {}

    def add(self, key: str) -> None:
        words = key.split(" ")
        start = " ".join(words[:2])
        self._keys.add(key)
        known = self._lengths.get(start, ())
        if len(words) not in known:
            self._lengths[start] = tuple(sorted({*known, len(words)}, reverse=True))

    def find(self, text: Sequence[str]) -> list[str]:
        """Return the keys that occur in the words of a text, each once; of keys with the same start the longest."""
        starts = self._lengths
        pairs = [*map(" ".join, pairwise(text)), ""]
        found: dict[str, None] = {}
        past = 0
        for place in [place for place, word in enumerate(text) if word in starts or pairs[place] in starts]:
            if place >= past and (length := self._longest_match(text, place, pairs[place])):
                past = place + length
                found.setdefault(" ".join(text[place:past]))
        return list(found)

    def _longest_match(self, text: Sequence[str], place: int, pair: str) -> int:
        for start in (pair, text[place]):
            for length in self._lengths.get(start, ()):
                if place + length <= len(text) and " ".join(text[place : place + length]) in self._keys:
                    return length
        return 0


def _is_meaningful(key: str) -> bool:
    return len(key) > 1 and key not in _COMMON_WORDS and not key.replace(" ", "").isdigit()


def _define(found: dict[str, Definition], written: str, origin: DefinitionOrigin) -> None:
    key = name_key(written)
    if _is_meaningful(key):
        found.setdefault(key, Definition(key, written, origin))


def _find_candidates(text: str) -> Iterator[tuple[int, str]]:
    for match in _MARKED.finditer(text):
        yield match.start(), match[match.lastindex or 0].strip()
    for match in _IDENTIFIER.finditer(text):
        yield match.start(), match.group()
    if not text.isascii():
        for match in _KATAKANA.finditer(text):
            yield match.start(), match.group()
    for match in _NAME.finditer(text):
        yield from _capitalised(text, match)


def _capitalised(text: str, match: re.Match[str]) -> Iterator[tuple[int, str]]:
    """Yield the name in a run of capitalised words, without the common words at its ends.

    A single word at the start of a sentence is skipped: its capital does not show that it is a name.
    """
    start, run = match.start(), match.group().split()
    while run and (run[0].lower() in _COMMON_WORDS or run[0].isdigit()):
        start += len(run.pop(0)) + 1
    while run and run[-1].lower() in _COMMON_WORDS:
        run.pop()
    name = " ".join(run).removesuffix("'s").removesuffix("’s")
    if not name or (len(run) == 1 and name[1:].islower() and _opens_sentence(text, start)):
        return
    yield start, name


def _opens_sentence(text: str, start: int) -> bool:
    before = text[max(0, start - 8) : start].rstrip(_BEFORE_SENTENCE)
    return not before or before[-1] in ".!?:;|\n。！？"


def _opening(text: str) -> str:
    """Return the name at the start of a text if the text explains it, else an empty string."""
    start = text[:300].lstrip(_MARKS)
    start = next((start[len(article) :] for article in ("The ", "A ", "An ") if start.startswith(article)), start)
    if match := _NAME.match(start):
        run = match.group().split()
        plain = run[0].lower() in _COMMON_WORDS or run[-1].lower() in _COMMON_WORDS
        return match.group() if not plain and _EXPLAINED.match(start, match.end()) else ""
    spaceless = _EXPLAINED_SPACELESS.match(start)
    return spaceless[1] if spaceless and not spaceless[1].isascii() else ""
