"""Finds names in a text without a language model, and where a text names the titles of a base.

A name is what rules can honestly see: capitalised words, identifiers, what stands in quotes, links, bold or code marks,
foreign names in katakana. Names in Han characters or lower case cannot be seen so; where they are titles, `Titles`
finds them word by word. A text *defines* its title, its headings, and the name it opens with if it goes on to explain
it: "Ada Lovelace (1815-1852) was ...". Two spellings are one name if their keys are equal.

What a text names and defines depends on this text alone, so no order of adding documents changes it.
"""
# ruff: noqa: RUF001  (the wide quotes and commas of Chinese and Japanese are meant)

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

NAMES_VERSION = 1  # rises when the same text gives other names: then its graph must be built again
MAX_NAME_WORDS = 12  # words of a name; a longer title is a sentence, and only a quotation repeats it
MAX_NAME_CHARACTERS = 30  # the same where each character counts as a word
MAX_NAMES = 128  # names of a text; a list of thousands names nothing in particular

# Words that open sentences and stand between names, months and days: no names alone.
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
    """A name in a text: what joins its spellings, and how it was first written."""

    key: str
    text: str


class DefinitionOrigin(StrEnum):
    """How sure it is that a text defines a name."""

    TITLE = "title"  # the title of the document or a heading: found wherever its words stand
    OPENING = "opening"  # what the document opens with and explains: found where it is written as a name


class Definition(NamedTuple):
    """A name that a text is about."""

    key: str
    text: str
    origin: DefinitionOrigin

    @property
    def sought(self) -> bool:
        """Tell whether it belongs in `Titles`, because rules would not see every mention of it."""
        return self.origin is DefinitionOrigin.TITLE or not self.key.isascii()


def name_key(name: str) -> str:
    """Return what joins the spellings of a name: its words in lower case, without accents and a leading article.

    It is empty if the name has no word, or too many to be one.
    """
    found = split_key_words(name)
    joined = " ".join(found)
    if len(found) > (MAX_NAME_WORDS if joined.isascii() else MAX_NAME_CHARACTERS):
        return ""
    return next((joined[len(one) :] for one in _ARTICLES if joined.startswith(one)), joined)


def split_key_words(text: str) -> list[str]:
    """Return the words of a text as keys have them: for `Titles.find`."""
    if text.isascii():
        return split_words(text)
    apart = unicodedata.normalize("NFD", text)
    return split_words(unicodedata.normalize("NFC", "".join(c for c in apart if not "\u0300" <= c <= "\u036f")))


def find_names(text: str) -> list[Name]:
    """Return the names in a text, each key once, in the order they first stand in; at most `MOST`."""
    found: dict[str, Name] = {}
    if "](" in text or "://" in text:
        text = _ADDRESS.sub(" ", text)
    for _, written in sorted(_find_candidates(text)):
        one = name_key(written)
        if _is_meaningful(one) and one not in found:
            found[one] = Name(one, written)
    return list(found.values())[:MAX_NAMES]


def find_definitions(text: str, *, title: str = "", first: bool = False) -> list[Definition]:
    """Return the names that a chunk defines, each key once.

    They are the headings in its text and, if it is the first of its document, the title and what the text opens with.
    A title or heading also counts without what it says in brackets: "Mercury (planet)" is named by "Mercury", too.
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
    """The names that chunks of a base define, so that those which stand in a text are found in one pass.

    An owner is whoever defines a name: a chunk. The same name may have many. It does not matter in which order names
    were added; what was discarded as often as it was added is gone.
    """

    def __init__(self) -> None:
        self._owners: dict[str, dict[int, int]] = {}
        self._lengths: dict[str, dict[int, int]] = {}  # first two words -> how many names of so many words begin so

    def __len__(self) -> int:
        return len(self._owners)

    def add(self, name: str, owner: int) -> None:
        """Let an owner define this key."""
        if name not in self._owners:
            start, length = _start(name)
            lengths = self._lengths.setdefault(start, {})
            lengths[length] = lengths.get(length, 0) + 1
        owners = self._owners.setdefault(name, {})
        owners[owner] = owners.get(owner, 0) + 1

    def discard(self, name: str, owner: int) -> None:
        """Take back one `add`; nothing happens if there was none."""
        owners = self._owners.get(name, {})
        if owner not in owners:
            return
        owners[owner] -= 1
        if not owners[owner]:
            del owners[owner]
        if not owners:
            del self._owners[name]
            start, length = _start(name)
            lengths = self._lengths[start]
            lengths[length] -= 1
            if not lengths[length]:
                del lengths[length]
            if not lengths:
                del self._lengths[start]

    def owners(self, name: str) -> list[int]:
        """Return who defines this key, in order."""
        return sorted(self._owners.get(name, ()))

    def find(self, text: Sequence[str]) -> list[str]:
        """Return the keys that stand in the words of a text, each once; of those that begin together the longest."""
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
            for length in sorted(self._lengths.get(start, ()), reverse=True):
                if place + length <= len(text) and " ".join(text[place : place + length]) in self._owners:
                    return length
        return 0


def _start(name: str) -> tuple[str, int]:
    parts = name.split(" ")
    return " ".join(parts[:2]), len(parts)


def _is_meaningful(one: str) -> bool:
    return len(one) > 1 and one not in _COMMON_WORDS and not one.replace(" ", "").isdigit()


def _define(found: dict[str, Definition], written: str, source: DefinitionOrigin) -> None:
    one = name_key(written)
    if _is_meaningful(one):
        found.setdefault(one, Definition(one, written, source))


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
    """Yield the name in a run of capitalised words, without the plain words around it.

    One word that is capitalised because it opens a sentence is none: nothing shows that it is a name.
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
    """Return the name that a text opens with, if it goes on to explain it, else nothing."""
    start = text[:300].lstrip(_MARKS)
    start = next((start[len(one) :] for one in ("The ", "A ", "An ") if start.startswith(one)), start)
    if match := _NAME.match(start):
        run = match.group().split()
        plain = run[0].lower() in _COMMON_WORDS or run[-1].lower() in _COMMON_WORDS
        return match.group() if not plain and _EXPLAINED.match(start, match.end()) else ""
    spaceless = _EXPLAINED_SPACELESS.match(start)
    return spaceless[1] if spaceless and not spaceless[1].isascii() else ""
