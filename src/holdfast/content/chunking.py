"""Splits a text into chunks: the passages that are embedded, searched and shown.

Paid answers for a chunk are cached under its text and headings, so an edit elsewhere in the document must not change
the chunk. Filling one chunk after the other would not work: one more word at the top would move every boundary below
it. Here a boundary depends only on the text near it.

1. A heading begins a new chunk, unless the section before it is tiny and no deeper: then both share a chunk.
2. In a section that is too long, a position is an *anchor* if there is no better position to cut near it. A better rank
   wins (heading, blank line, list item, line, sentence, ...); among equal ranks, the smaller hash of the following
   text. Whether a position is an anchor depends on less than one chunk of text on either side.
3. The text between two anchors is one chunk if it fits. Otherwise it is cut from its start, again at the best
   positions.

So an edit moves only the anchors near it, and no chunk after the next unchanged anchor. The same text gives the same
chunks in every process and Python version: the hash is a CRC, and neither a tokenizer nor a clock is involved.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from holdfast.content.token_estimate import TOKEN_WEIGHT, estimate_tokens
from holdfast.content.units import CutRank, Unit, UnitSplitter, sentence_starts
from holdfast.errors import BadSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["ChunkSpan", "ChunkingRules", "estimate_tokens", "split_into_chunks"]

MIN_CHUNK_TOKENS = 16
_end_weight = attrgetter("end_weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkingRules:
    """Limits of a chunk, in tokens as `estimate_tokens` counts them."""

    size: int = 512  # maximum
    overlap: int = 64  # maximum that a chunk repeats from the text before it

    def __post_init__(self) -> None:
        if self.size < MIN_CHUNK_TOKENS:
            raise BadSettings("chunk_too_small", size=self.size, least=MIN_CHUNK_TOKENS)
        if not 0 <= self.overlap <= self.size // 3:
            raise BadSettings("overlap_too_long", size=self.size, overlap=self.overlap, most=self.size // 3)


class ChunkSpan(NamedTuple):
    """A chunk `text[start:end]` of at most `size` tokens, never only white space.

    `text[start:own_start]` repeats the end of the previous chunk. The own parts `text[own_start:end]` of all chunks are
    in order, do not overlap, and leave out only white space.
    """

    start: int
    end: int
    headings: tuple[str, ...]  # above its own part, outermost first; without a heading that it begins with
    own_start: int


def split_into_chunks(text: str, rules: ChunkingRules) -> list[ChunkSpan]:
    """Return the chunks of the text in order; none if the text is empty or white space.

    Example: `[text[chunk.start : chunk.end] for chunk in split_into_chunks(text, ChunkingRules(size=256))]`
    """
    splitter = _ChunkSplitter(text, rules)
    units = splitter.units.split(splitter.radius)
    return [chunk for segment in _segments(units, rules) for chunk in splitter.chunks(segment)]


def _segments(units: Iterable[Unit], rules: ChunkingRules) -> Iterator[list[Unit]]:
    """Yield the segments that no chunk crosses: a section, together with tiny sections before it.

    A section below an eighth of a chunk joins the next one, unless that has a higher heading. A heading without its own
    text joins the deeper heading that follows. Neither is useful alone.
    """
    tiny = rules.size * TOKEN_WEIGHT // 8
    segment: list[Unit] = []
    opened = level = 0  # of the section: weight up to its start, and level of its heading
    for unit in units:
        if unit.level and not unit.glued:
            if segment and (unit.level < level or segment[-1].end_weight - opened >= tiny):
                yield segment
                segment = []
            opened = unit.start_weight
        level = unit.level or level
        segment.append(unit)
    if segment:
        yield segment


class _ChunkSplitter:
    def __init__(self, text: str, rules: ChunkingRules) -> None:
        self.text = text
        self.units = UnitSplitter(text, rules.size)
        self.size = rules.size * TOKEN_WEIGHT
        self.overlap = rules.overlap * TOKEN_WEIGHT
        self.own_weight = self.size - self.overlap
        # A paragraph within this radius is a better anchor than any of its sentences.
        self.radius = self.own_weight * 2 // 3

    def chunks(self, segment: list[Unit]) -> Iterator[ChunkSpan]:
        """Yield the chunks of a segment; each begins at an anchor or where the previous chunk was cut."""
        opening, closing = segment[0], segment[-1]
        if closing.end_weight - opening.start_weight <= self.size:
            yield ChunkSpan(opening.start, closing.end, opening.headings, opening.start)
            return
        before: list[Unit] = []
        for first, past in pairwise((0, *_anchors(segment, self.radius), len(segment))):
            part = segment[first:past]
            while part:
                unit = part[0]
                start, repeated = self._find_overlap(before, unit)
                part, cut = self._cut(part, self.size - repeated)
                before, part = part[:cut], part[cut:]
                full = before[-1].end_weight - unit.start_weight + repeated > self.size
                yield ChunkSpan(unit.start if full else start, before[-1].end, unit.headings, unit.start)

    def _cut(self, part: list[Unit], limit: int) -> tuple[list[Unit], int]:
        """Return the part, with some units divided if needed, and how many of its units form the first chunk.

        A chunk that fits without overlap is not cut for the sake of the overlap. Otherwise the cut is at the best
        position that leaves neither a short chunk nor a short rest, and far enough that the rest needs no extra chunk.
        """
        head, tail = part[0].start_weight, part[-1].end_weight
        if tail - head <= self.size:
            return part, len(part)
        short, far = limit // 3, limit * 3 // 4
        least = max(short, far - (far - (tail - head)) % self.own_weight)
        last = bisect_right(part, head + limit, 1, key=_end_weight)
        places = [place for place in range(1, last + 1) if not part[place].glued]
        good = [
            place
            for place in places
            if part[place - 1].end_weight - head >= least and tail - part[place].start_weight >= short
        ]
        if good:
            return part, min(good, key=lambda place: (part[place].cut_key, -place))
        if any(unit.undivided for unit in part[: last + 1]):
            return self._cut([*self._divide_whole_units(part[: last + 1]), *part[last + 1 :]], limit)
        return part, places[-1] if places else last

    def _divide_whole_units(self, part: list[Unit]) -> Iterator[Unit]:
        """Yield the units, with the pieces in place of each undivided unit."""
        for unit in part:
            if unit.undivided:
                yield from self.units.divide(unit)
            else:
                yield unit

    def _find_overlap(self, before: list[Unit], unit: Unit) -> tuple[int, int]:
        """Return where the overlap of a chunk with the previous one starts, and its weight.

        The overlap consists of whole units or sentences of the same section. It begins inside a sentence only if the
        chunk was cut there. A chunk that begins with a heading has no overlap.
        """
        start = unit.start, 0
        if unit.level or not self.overlap:
            return start
        worst = max(unit.rank, CutRank.SENTENCE)
        for previous in reversed(before):
            if previous.level or previous.headings is not unit.headings:
                break
            if unit.start_weight - previous.start_weight > self.overlap:
                return self._find_overlap_sentence(previous, unit) or start
            if previous.rank <= worst or previous.glued:
                start = previous.start, unit.start_weight - previous.start_weight
        return start

    def _find_overlap_sentence(self, previous: Unit, unit: Unit) -> tuple[int, int] | None:
        """Return the first sentence of `previous` from which the text up to `unit` fits the overlap, and its weight."""
        gap = unit.start_weight - previous.end_weight
        for place in () if previous.solid else sentence_starts(self.text, previous.start, previous.end):
            weight = self.units.weigh(place, previous.end) + gap
            if weight <= self.overlap:
                return place, weight
        return None


def _anchors(segment: list[Unit], radius: int) -> list[int]:
    """Return the units before which a cut is better than anywhere within this weight on either side.

    Among equal positions the first is better, and the ends of the segment are better than all others. The stack holds
    the positions that are better than all later ones so far.
    """
    found = []
    # cut key, weight up to the unit, its number, whether no better position is near before it
    stack = [(-1, segment[0].start_weight, 0, False)]
    for number, unit in enumerate(segment):
        while stack[-1][0] > unit.cut_key:
            _, head, best, alone = stack.pop()
            if alone and unit.start_weight - head > radius:
                found.append(best)
        stack.append((unit.cut_key, unit.start_weight, number, unit.start_weight - stack[-1][1] > radius))
    end = segment[-1].end_weight
    found += [best for _, head, best, alone in stack if alone and end - head > radius]
    return sorted(found)
