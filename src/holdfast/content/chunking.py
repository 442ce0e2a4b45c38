"""Divides a text into chunks: the pieces that are embedded, searched and shown.

What was paid for a chunk is kept under its text and its headings, so a chunk must stay the same when something else in
its document changes. Filling one chunk after the other cannot do that: a word more at the top moves every boundary
below it. Here a boundary depends on nothing but the text near it.

1. A heading begins a new chunk, unless the section before it is tiny and no deeper: then both stand together.
2. In a section that is too long, a place is an *anchor* if no better place to cut is near it. Better is the better rank
   (heading, blank line, list item, line, sentence, ...), and of equal ranks the smaller hash of what begins there.
   To tell an anchor, less than a chunk to either side of it is looked at.
3. What lies between two anchors is one chunk if it fits, else it is cut, from its start on, again at the best places.

So an edit moves the anchors near it, and no chunk behind the next anchor that stayed. The same text gives the same
chunks in every process and on every Python: the hash is a CRC, and no tokenizer or clock is asked.
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
    """How long chunks are, in tokens as `estimate` counts them."""

    size: int = 512  # at most
    overlap: int = 64  # of the text before it that a chunk repeats, at most

    def __post_init__(self) -> None:
        if self.size < MIN_CHUNK_TOKENS:
            raise BadSettings(
                f"A chunk of {self.size} tokens says nothing; allow {MIN_CHUNK_TOKENS} or more.",
                "chunk_too_small",
                size=self.size,
                least=MIN_CHUNK_TOKENS,
            )
        if not 0 <= self.overlap <= self.size // 3:
            raise BadSettings(
                f"Chunks of {self.size} tokens cannot repeat {self.overlap} of the text before them; "
                f"choose an overlap from 0 to {self.size // 3}, a third of the chunk.",
                "overlap_too_long",
                size=self.size,
                overlap=self.overlap,
                most=self.size // 3,
            )


class ChunkSpan(NamedTuple):
    """A piece of a text: `text[start:end]`, at most `size` tokens, and never white space alone.

    What precedes `body` repeats the end of the own part of the chunk before. Own parts follow each other in order,
    share nothing, and leave out nothing but white space.
    """

    start: int
    end: int
    headings: tuple[str, ...]  # those its own part stands under, outermost first; not the one it may begin with
    own_start: int  # where its own part begins


def split_into_chunks(text: str, rules: ChunkingRules) -> list[ChunkSpan]:
    """Return the chunks of the text in order; none if it is empty or white space."""
    cutting = _ChunkSplitter(text, rules)
    pieces = cutting.units.split(cutting.radius)
    return [chunk for segment in _segments(pieces, rules) for chunk in cutting.chunks(segment)]


def _segments(pieces: Iterable[Unit], rules: ChunkingRules) -> Iterator[list[Unit]]:
    """Yield what no chunk reaches beyond: a section, together with tiny ones before it.

    A section below an eighth of a chunk joins the next, unless that stands higher; a heading without text of its own
    joins the deeper one that follows. Neither would say much alone.
    """
    tiny = rules.size * TOKEN_WEIGHT // 8
    segment: list[Unit] = []
    opened = level = 0  # of the section: weight up to its start, and level of its heading
    for unit in pieces:
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
    """Cuts segments into chunks."""

    def __init__(self, text: str, rules: ChunkingRules) -> None:
        self.text = text
        self.units = UnitSplitter(text, rules.size)
        self.size = rules.size * TOKEN_WEIGHT
        self.overlap = rules.overlap * TOKEN_WEIGHT
        self.own_weight = self.size - self.overlap  # what a chunk may own beside all it may repeat
        self.radius = (
            self.own_weight * 2 // 3
        )  # no sentence of a paragraph within it is an anchor: the paragraph is better

    def chunks(self, segment: list[Unit]) -> Iterator[ChunkSpan]:
        """Yield the chunks of a segment; each begins at an anchor, or where the one before it was cut."""
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
        """Return a part and how many of its units are the first chunk; units in the way may have been divided.

        A chunk repeats nothing rather than be cut for it. If it is cut, then at the best place that leaves neither a
        short chunk nor a short rest, and so far on that the rest does not need a chunk more for it.
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
        """Yield the units, and the pieces of those that were still whole."""
        for unit in part:
            if unit.undivided:
                yield from self.units.divide(unit)
            else:
                yield unit

    def _find_overlap(self, before: list[Unit], unit: Unit) -> tuple[int, int]:
        """Return from where on a chunk repeats the one before it, and the weight of that.

        It repeats whole units or sentences of its own section, and begins inside a sentence only if it was cut there.
        A chunk that begins with a heading repeats nothing.
        """
        start = unit.start, 0
        if unit.level or not self.overlap:
            return start
        worst = max(unit.rank, CutRank.SENTENCE)
        for one in reversed(before):
            if one.level or one.headings is not unit.headings:
                break
            if unit.start_weight - one.start_weight > self.overlap:
                return self._find_overlap_sentence(one, unit) or start
            if one.rank <= worst or one.glued:
                start = one.start, unit.start_weight - one.start_weight
        return start

    def _find_overlap_sentence(self, one: Unit, unit: Unit) -> tuple[int, int] | None:
        """Return the first sentence inside `one` from which on all before `unit` can be repeated, and its weight."""
        gap = unit.start_weight - one.end_weight
        for place in () if one.solid else sentence_starts(self.text, one.start, one.end):
            weight = self.units.weigh(place, one.end) + gap
            if weight <= self.overlap:
                return place, weight
        return None


def _anchors(segment: list[Unit], radius: int) -> list[int]:
    """Return the units before which it is better to cut than anywhere within this weight to either side.

    Of equal places the first counts as better, and the ends of the segment as better than any. The stack holds the
    places that are better than all seen after them.
    """
    found = []
    stack = [
        (-1, segment[0].start_weight, 0, False)
    ]  # key, weight up to it, number, whether no better one is near before it
    for number, unit in enumerate(segment):
        while stack[-1][0] > unit.cut_key:
            _, head, best, alone = stack.pop()
            if alone and unit.start_weight - head > radius:
                found.append(best)
        stack.append((unit.cut_key, unit.start_weight, number, unit.start_weight - stack[-1][1] > radius))
    end = segment[-1].end_weight
    found += [best for _, head, best, alone in stack if alone and end - head > radius]
    return sorted(found)
