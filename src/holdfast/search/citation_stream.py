"""Reads an answer as it comes and makes of its markers citations that exist.

A marker is a number in brackets, or several. It names a source by its place in the prompt; one that names no source is
taken out together with the space before it. What stands in code is no marker: `argv[1]` stays what it is. Each decision
is made when enough of the answer has come to make it, so it does not depend on the pieces in which it comes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast.llm import THOUGHTS
from holdfast.search.citations import Citation, cite, last_sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.search.citations import Source

    Part = str | Citation
    Step = tuple[int, list[Part]] | None  # where a part ends and what it says; None if more must come first

NOTHING = "[NOTHING]"  # what the model says instead of an answer
REMEMBERED = 2000  # characters of the answer in which the sentence before a marker is looked for

_OPEN, _CLOSE = "[【［", "]】］"  # noqa: RUF001 - as models write that were taught Chinese
_LONGEST = 48  # characters of a marker
_INSIDE = re.compile(rf"[0-9A-Za-z \t,;^\-–]{{0,{_LONGEST}}}")  # noqa: RUF001 - the dash of a range
_UNCLOSED = re.compile(rf"[{re.escape(_OPEN)}][^{re.escape(_CLOSE)}]*\Z")
# Three digits at most: four are a year.
_NUMBERS = re.compile(r"[\s^]*(?:source\s*)?\d{1,3}(?:[\s,;^]+\d{1,3})*[\s^]*", re.IGNORECASE)
_RANGE = re.compile(r"\s*([1-9]\d{0,2})\s*[-–]\s*(\d{1,3})\s*")  # noqa: RUF001
_NUMBER = re.compile(r"\d+")
_HALF = re.compile(r"[\s^]*(?:s(?:o(?:u(?:r(?:ce?)?)?)?)?)?[\d\s,;^\-–]*", re.IGNORECASE)  # noqa: RUF001
_PLAIN = re.compile(rf"[^ \t`{re.escape(_OPEN)}]+")
_TICKS = re.compile(r"`+")
_FENCE = 3  # ticks that open code of many lines


class Reader:
    """Takes an answer in pieces and gives out what may be shown: words, and citations in place of markers."""

    def __init__(self, sources: Sequence[Source], question: str = "") -> None:
        self.text = ""  # what was given out, with markers
        self.citations: list[Citation] = []
        self.declined = False  # whether the model said that nothing was found
        self._sources = sources
        self._question = question
        self._said = ""  # what was given out last, without markers
        self._waiting = ""
        self._begun = False  # whether what the model thinks aloud is over
        self._ticks = 0  # of the code we are in

    def feed(self, piece: str) -> list[Part]:
        """Take a piece and return what can be shown now; neighbouring words are one text."""
        self._waiting += piece
        return self._given(self._read(final=False))

    def finish(self) -> list[Part]:
        """Return what was held back; a marker that was never closed is dropped."""
        return self._given(self._read(final=True))

    def _given(self, parts: Iterator[Part]) -> list[Part]:
        given: list[Part] = []
        for part in parts:
            if isinstance(part, Citation):
                self.citations.append(part)
                self.text += part.marker
                given.append(part)
                continue
            words = part if self.text else part.lstrip()
            self.text += words
            self._said = (self._said + words)[-REMEMBERED:]
            if words and given and isinstance(given[-1], str):
                given[-1] += words
            elif words:
                given.append(words)
        return given

    def _read(self, *, final: bool) -> Iterator[Part]:
        """Yield the parts that are decided and keep the rest waiting."""
        self._begun = self._begun or self._begins(final=final)
        if not self._begun:
            return
        place = 0
        while place < len(self._waiting):
            step = self._code(place, final=final) if self._ticks else self._prose(place, final=final)
            if step is None:
                break
            place, parts = step
            yield from parts
        self._waiting = self._waiting[place:]

    def _begins(self, *, final: bool) -> bool:
        """Tell whether the answer has begun, and drop the thoughts before it; thoughts without end have no answer."""
        opening, closing = THOUGHTS
        coming = self._waiting.lstrip()
        if not coming.startswith(opening):
            return final or not opening.startswith(coming)
        _, ended, self._waiting = coming.partition(closing) if closing in coming else ("", "", coming)
        return bool(ended)

    def _prose(self, place: int, *, final: bool) -> Step:
        text = self._waiting
        if plain := _PLAIN.match(text, place):
            return plain.end(), [plain.group()]
        if text[place] == "`":
            return self._opened(place, final=final)
        opening = place
        while opening < len(text) and text[opening] in " \t":
            opening += 1
        if opening == len(text) and not final:
            return None
        if text[opening : opening + 1] not in tuple(_OPEN):
            return opening, [text[place:opening]]
        return self._bracket(place, opening, final=final)

    def _bracket(self, place: int, opening: int, *, final: bool) -> Step:
        text = self._waiting
        inside = _INSIDE.match(text, opening + 1)
        end = inside.end() if inside else opening + 1
        if end == len(text):
            if not final:
                return None
            half = _HALF.fullmatch(text, opening + 1) or NOTHING.startswith(text[opening:].upper())
            return end, [] if half else [text[place:end]]
        if text[end] in _CLOSE:
            body = text[opening + 1 : end]
            if body.strip().upper() == NOTHING[1:-1]:
                self.declined = True
                return end + 1, self._removed()
            if (numbers := _numbers(body)) is not None:
                return end + 1, self._cited(text[place:opening], numbers)
        return opening + 1, [text[place : opening + 1]]

    def _cited(self, space: str, numbers: Sequence[int]) -> list[Part]:
        known = [number for number in dict.fromkeys(numbers) if 0 < number <= len(self._sources)]
        claim = last_sentence(self._said)
        cited: list[Part] = [cite(self._sources[number - 1], number, claim, self._question) for number in known]
        return [space, *cited] if cited else self._removed()

    def _removed(self) -> list[Part]:
        """Leave nothing; but in an open bracket a sign, or what is around the gap would become a marker."""
        return ["…"] if _UNCLOSED.search(self.text[-_LONGEST:]) else []

    def _opened(self, place: int, *, final: bool) -> Step:
        """Read ticks: code of many lines from here on, code within a line if it is closed there, else only ticks."""
        text = self._waiting
        ticks = _run(text, place)
        if ticks == len(text) and not final:
            return None
        count = ticks - place
        if count >= _FENCE:
            self._ticks = count
            return ticks, [text[place:ticks]]
        for run in _TICKS.finditer(text, ticks):
            if "\n" in text[ticks : run.start()] or (run.end() == len(text) and not final):
                break
            if run.end() - run.start() == count:
                return run.end(), [text[place : run.end()]]
        if "\n" in text[ticks:] or final:
            return ticks, [text[place:ticks]]
        return None

    def _code(self, place: int, *, final: bool) -> Step:
        """Read on in code of many lines, up to its end."""
        text = self._waiting
        start = text.find("`", place)
        if start < 0:
            return len(text), [text[place:]]
        if start > place:
            return start, [text[place:start]]
        end = _run(text, start)
        if end == len(text) and not final:
            return None
        if end - start >= self._ticks:
            self._ticks = 0
        return end, [text[start:end]]


def _run(text: str, place: int) -> int:
    while place < len(text) and text[place] == "`":
        place += 1
    return place


def _numbers(body: str) -> list[int] | None:
    """Return the numbers of a marker, also of a range; None if this is no marker."""
    if span := _RANGE.fullmatch(body):
        first, last = int(span[1]), int(span[2])
        return list(range(first, last + 1))
    return [int(number) for number in _NUMBER.findall(body)] if _NUMBERS.fullmatch(body) else None
