"""Parses an answer as it streams, and replaces its markers by citations that exist.

A marker is one or several numbers in brackets. A number is the position of a source in the prompt. A marker without a
known source is removed together with the space before it. Text in code is left alone: `argv[1]` is no marker. The
parser decides only when enough of the answer has arrived, so the result does not depend on how the stream is cut.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast.llm import THINKING_TAGS
from holdfast.search.citations import Citation, cite, last_sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.search.citations import Passage

    Part = str | Citation
    Step = tuple[int, list[Part]] | None  # end position and parts; None if more input is needed

NO_ANSWER = "[NOTHING]"  # the model writes this if the sources have no answer
CLAIM_WINDOW = 2000  # characters before a marker that are searched for its sentence

_OPEN, _CLOSE = "[【［", "]】］"  # noqa: RUF001 - brackets of Chinese models
_MAX_MARKER = 48  # characters of a marker
_MARKER_BODY = re.compile(rf"[0-9A-Za-z \t,;^\-–]{{0,{_MAX_MARKER}}}")  # noqa: RUF001 - the dash of a range
_UNCLOSED = re.compile(rf"[{re.escape(_OPEN)}][^{re.escape(_CLOSE)}]*\Z")
# At most three digits: four are a year.
_NUMBERS = re.compile(r"[\s^]*(?:source\s*)?\d{1,3}(?:[\s,;^]+\d{1,3})*[\s^]*", re.IGNORECASE)
_RANGE = re.compile(r"\s*([1-9]\d{0,2})\s*[-–]\s*(\d{1,3})\s*")  # noqa: RUF001
_NUMBER = re.compile(r"\d+")
_UNFINISHED_MARKER = re.compile(r"[\s^]*(?:s(?:o(?:u(?:r(?:ce?)?)?)?)?)?[\d\s,;^\-–]*", re.IGNORECASE)  # noqa: RUF001
_PLAIN = re.compile(rf"[^ \t`{re.escape(_OPEN)}]+")
_TICKS = re.compile(r"`+")
_FENCE = 3  # backticks that open a fenced block


class CitationReader:
    """Takes an answer in pieces and returns text and citations that can be shown.

    reader = CitationReader(sources, question)
    for piece in stream:
        show(reader.feed(piece))
    show(reader.finish())
    """

    def __init__(self, sources: Sequence[Passage], question: str = "") -> None:
        self.text = ""  # all returned text, with markers
        self.citations: list[Citation] = []
        self.declined = False  # the model wrote NO_ANSWER
        self._sources = sources
        self._question = question
        self._recent_text = ""  # the end of the returned text, without markers
        self._pending = ""
        self._answer_started = False  # any thinking section is over
        self._ticks = 0  # backticks of the open fence; 0 outside

    def feed(self, piece: str) -> list[Part]:
        """Take a piece; return what can be shown now, with adjacent text joined."""
        self._pending += piece
        return self._emit(self._parse(final=False))

    def finish(self) -> list[Part]:
        """Return the pending rest; an unclosed marker is dropped."""
        return self._emit(self._parse(final=True))

    def _emit(self, parts: Iterator[Part]) -> list[Part]:
        given: list[Part] = []
        for part in parts:
            if isinstance(part, Citation):
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
        """Yield the parts that are decided; the rest stays pending."""
        self._answer_started = self._answer_started or self._skip_thoughts(final=final)
        if not self._answer_started:
            return
        position = 0
        while position < len(self._pending):
            step = self._read_code(position, final=final) if self._ticks else self._read_prose(position, final=final)
            if step is None:
                break
            position, parts = step
            yield from parts
        self._pending = self._pending[position:]

    def _skip_thoughts(self, *, final: bool) -> bool:
        """Drop a leading thinking section; return whether the answer has started."""
        opening, closing = THINKING_TAGS
        coming = self._pending.lstrip()
        if not coming.startswith(opening):
            return final or not opening.startswith(coming)
        _, ended, self._pending = coming.partition(closing) if closing in coming else ("", "", coming)
        return bool(ended)

    def _read_prose(self, position: int, *, final: bool) -> Step:
        text = self._pending
        if plain := _PLAIN.match(text, position):
            return plain.end(), [plain.group()]
        if text[position] == "`":
            return self._read_ticks(position, final=final)
        opening = position
        while opening < len(text) and text[opening] in " \t":
            opening += 1
        if opening == len(text) and not final:
            return None
        if text[opening : opening + 1] not in tuple(_OPEN):
            return opening, [text[position:opening]]
        return self._read_bracket(position, opening, final=final)

    def _read_bracket(self, position: int, opening: int, *, final: bool) -> Step:
        text = self._pending
        inside = _MARKER_BODY.match(text, opening + 1)
        end = inside.end() if inside else opening + 1
        if end == len(text):
            if not final:
                return None
            half = _UNFINISHED_MARKER.fullmatch(text, opening + 1) or NO_ANSWER.startswith(text[opening:].upper())
            return end, [] if half else [text[position:end]]
        if text[end] in _CLOSE:
            body = text[opening + 1 : end]
            if body.strip().upper() == NO_ANSWER[1:-1]:
                self.declined = True
                return end + 1, self._fill_gap()
            if (numbers := _numbers(body)) is not None:
                return end + 1, self._cite_numbers(text[position:opening], numbers)
        return opening + 1, [text[position : opening + 1]]

    def _cite_numbers(self, space: str, numbers: Sequence[int]) -> list[Part]:
        known = [number for number in dict.fromkeys(numbers) if 0 < number <= len(self._sources)]
        claim = last_sentence(self._recent_text)
        cited: list[Part] = [cite(self._sources[number - 1], number, claim, self._question) for number in known]
        return [space, *cited] if cited else self._fill_gap()

    def _fill_gap(self) -> list[Part]:
        """Return nothing for a removed marker; inside an open bracket an ellipsis, so that no new marker forms."""
        return ["…"] if _UNCLOSED.search(self.text[-_MAX_MARKER:]) else []

    def _read_ticks(self, position: int, *, final: bool) -> Step:
        """Read backticks: a fence, an inline code span if it is closed on its line, or plain backticks."""
        text = self._pending
        ticks = _find_ticks_end(text, position)
        if ticks == len(text) and not final:
            return None
        count = ticks - position
        if count >= _FENCE:
            self._ticks = count
            return ticks, [text[position:ticks]]
        for run in _TICKS.finditer(text, ticks):
            if "\n" in text[ticks : run.start()] or (run.end() == len(text) and not final):
                break
            if run.end() - run.start() == count:
                return run.end(), [text[position : run.end()]]
        if "\n" in text[ticks:] or final:
            return ticks, [text[position:ticks]]
        return None

    def _read_code(self, position: int, *, final: bool) -> Step:
        """Read on in a fenced block, up to its end."""
        text = self._pending
        start = text.find("`", position)
        if start < 0:
            return len(text), [text[position:]]
        if start > position:
            return start, [text[position:start]]
        end = _find_ticks_end(text, start)
        if end == len(text) and not final:
            return None
        if end - start >= self._ticks:
            self._ticks = 0
        return end, [text[start:end]]


def _find_ticks_end(text: str, position: int) -> int:
    while position < len(text) and text[position] == "`":
        position += 1
    return position


def _numbers(body: str) -> list[int] | None:
    """Return the numbers of a marker, with ranges expanded; None if it is no marker."""
    if span := _RANGE.fullmatch(body):
        first, last = int(span[1]), int(span[2])
        return list(range(first, last + 1))
    return [int(number) for number in _NUMBER.findall(body)] if _NUMBERS.fullmatch(body) else None
