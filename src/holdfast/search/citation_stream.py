"""Reads an answer as it comes and makes of its markers citations that exist.

A marker is a number in brackets, or several. It names a source by its place in the prompt; one that names no source is
taken out together with the space before it. What stands in code is no marker: `argv[1]` stays what it is. Each decision
is made when enough of the answer has come to make it, so it does not depend on the pieces in which it comes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast.llm import THINKING_TAGS
from holdfast.search.citations import SourceCitation, cite, last_sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.search.citations import SourcePassage

    Part = str | SourceCitation
    Step = tuple[int, list[Part]] | None  # where a part ends and what it says; None if more must come first

NO_ANSWER = "[NOTHING]"  # what the model says instead of an answer
CLAIM_WINDOW = 2000  # characters of the answer in which the sentence before a marker is looked for

_OPEN, _CLOSE = "[【［", "]】］"  # noqa: RUF001 - as models write that were taught Chinese
_MAX_MARKER = 48  # characters of a marker
_MARKER_BODY = re.compile(rf"[0-9A-Za-z \t,;^\-–]{{0,{_MAX_MARKER}}}")  # noqa: RUF001 - the dash of a range
_UNCLOSED = re.compile(rf"[{re.escape(_OPEN)}][^{re.escape(_CLOSE)}]*\Z")
# Three digits at most: four are a year.
_NUMBERS = re.compile(r"[\s^]*(?:source\s*)?\d{1,3}(?:[\s,;^]+\d{1,3})*[\s^]*", re.IGNORECASE)
_RANGE = re.compile(r"\s*([1-9]\d{0,2})\s*[-–]\s*(\d{1,3})\s*")  # noqa: RUF001
_NUMBER = re.compile(r"\d+")
_UNFINISHED_MARKER = re.compile(r"[\s^]*(?:s(?:o(?:u(?:r(?:ce?)?)?)?)?)?[\d\s,;^\-–]*", re.IGNORECASE)  # noqa: RUF001
_PLAIN = re.compile(rf"[^ \t`{re.escape(_OPEN)}]+")
_TICKS = re.compile(r"`+")
_FENCE = 3  # ticks that open code of many lines


class CitationReader:
    """Takes an answer in pieces and gives out what may be shown: words, and citations in place of markers."""

    def __init__(self, sources: Sequence[SourcePassage], question: str = "") -> None:
        self.text = ""  # what was given out, with markers
        self.citations: list[SourceCitation] = []
        self.declined = False  # whether the model said that nothing was found
        self._sources = sources
        self._question = question
        self._recent_text = ""  # what was given out last, without markers
        self._pending = ""
        self._answer_started = False  # whether what the model thinks aloud is over
        self._ticks = 0  # of the code we are in

    def feed(self, piece: str) -> list[Part]:
        """Take a piece and return what can be shown now; neighbouring words are one text."""
        self._pending += piece
        return self._emit(self._parse(final=False))

    def finish(self) -> list[Part]:
        """Return what was held back; a marker that was never closed is dropped."""
        return self._emit(self._parse(final=True))

    def _emit(self, parts: Iterator[Part]) -> list[Part]:
        given: list[Part] = []
        for part in parts:
            if isinstance(part, SourceCitation):
                self.citations.append(part)
                self.text += part.marker
                given.append(part)
                continue
            words = part if self.text else part.lstrip()
            self.text += words
            self._recent_text = (self._recent_text + words)[-CLAIM_WINDOW:]
            if words and given and isinstance(given[-1], str):
                given[-1] += words
            elif words:
                given.append(words)
        return given

    def _parse(self, *, final: bool) -> Iterator[Part]:
        """Yield the parts that are decided and keep the rest waiting."""
        self._answer_started = self._answer_started or self._skip_thoughts(final=final)
        if not self._answer_started:
            return
        place = 0
        while place < len(self._pending):
            step = self._read_code(place, final=final) if self._ticks else self._read_prose(place, final=final)
            if step is None:
                break
            place, parts = step
            yield from parts
        self._pending = self._pending[place:]

    def _skip_thoughts(self, *, final: bool) -> bool:
        """Tell whether the answer has begun, and drop the thoughts before it; thoughts without end have no answer."""
        opening, closing = THINKING_TAGS
        coming = self._pending.lstrip()
        if not coming.startswith(opening):
            return final or not opening.startswith(coming)
        _, ended, self._pending = coming.partition(closing) if closing in coming else ("", "", coming)
        return bool(ended)

    def _read_prose(self, place: int, *, final: bool) -> Step:
        text = self._pending
        if plain := _PLAIN.match(text, place):
            return plain.end(), [plain.group()]
        if text[place] == "`":
            return self._read_ticks(place, final=final)
        opening = place
        while opening < len(text) and text[opening] in " \t":
            opening += 1
        if opening == len(text) and not final:
            return None
        if text[opening : opening + 1] not in tuple(_OPEN):
            return opening, [text[place:opening]]
        return self._read_bracket(place, opening, final=final)

    def _read_bracket(self, place: int, opening: int, *, final: bool) -> Step:
        text = self._pending
        inside = _MARKER_BODY.match(text, opening + 1)
        end = inside.end() if inside else opening + 1
        if end == len(text):
            if not final:
                return None
            half = _UNFINISHED_MARKER.fullmatch(text, opening + 1) or NO_ANSWER.startswith(text[opening:].upper())
            return end, [] if half else [text[place:end]]
        if text[end] in _CLOSE:
            body = text[opening + 1 : end]
            if body.strip().upper() == NO_ANSWER[1:-1]:
                self.declined = True
                return end + 1, self._fill_gap()
            if (numbers := _numbers(body)) is not None:
                return end + 1, self._cite_numbers(text[place:opening], numbers)
        return opening + 1, [text[place : opening + 1]]

    def _cite_numbers(self, space: str, numbers: Sequence[int]) -> list[Part]:
        known = [number for number in dict.fromkeys(numbers) if 0 < number <= len(self._sources)]
        claim = last_sentence(self._recent_text)
        cited: list[Part] = [cite(self._sources[number - 1], number, claim, self._question) for number in known]
        return [space, *cited] if cited else self._fill_gap()

    def _fill_gap(self) -> list[Part]:
        """Leave nothing; but in an open bracket a sign, or what is around the gap would become a marker."""
        return ["…"] if _UNCLOSED.search(self.text[-_MAX_MARKER:]) else []

    def _read_ticks(self, place: int, *, final: bool) -> Step:
        """Read ticks: code of many lines from here on, code within a line if it is closed there, else only ticks."""
        text = self._pending
        ticks = _find_ticks_end(text, place)
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

    def _read_code(self, place: int, *, final: bool) -> Step:
        """Read on in code of many lines, up to its end."""
        text = self._pending
        start = text.find("`", place)
        if start < 0:
            return len(text), [text[place:]]
        if start > place:
            return start, [text[place:start]]
        end = _find_ticks_end(text, start)
        if end == len(text) and not final:
            return None
        if end - start >= self._ticks:
            self._ticks = 0
        return end, [text[start:end]]


def _find_ticks_end(text: str, place: int) -> int:
    while place < len(text) and text[place] == "`":
        place += 1
    return place


def _numbers(body: str) -> list[int] | None:
    """Return the numbers of a marker, also of a range; None if this is no marker."""
    if span := _RANGE.fullmatch(body):
        first, last = int(span[1]), int(span[2])
        return list(range(first, last + 1))
    return [int(number) for number in _NUMBER.findall(body)] if _NUMBERS.fullmatch(body) else None
