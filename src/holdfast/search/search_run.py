"""One query in one snapshot: channels propose chunks, and only served chunks become hits."""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from holdfast.catalog import confirm_chunks, read_served_chunks, served_recipes_of_base
from holdfast.errors import Permanent, Transient, WorkError
from holdfast.indexes import Rescores
from holdfast.search.fusion import ChannelResult, ChannelScore, FusedHit, fuse
from holdfast.search.results import Hit, Hits, to_notice

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from holdfast.catalog import Base, ChunkOwnerCache, Recipe, ServedChunk
    from holdfast.db import Transaction
    from holdfast.indexes import Found, IndexRegistry

log = logging.getLogger("holdfast")

DEPTH = 100  # hits per channel
TRIES = 5  # queries to a channel with too few served hits, each for more
REFETCH_FACTOR = 4


class Confirmation(NamedTuple):
    """A chunk that may be shown, and the recipe that serves it."""

    generation: int
    build: int  # the served list
    document: int
    kind: str
    recipe: int


class SearchRun:
    """One query in one snapshot: the proposals, and which of them are served."""

    def __init__(
        self,
        tx: Transaction,
        indexes: IndexRegistry,
        base: Base,
        query: str,
        *,
        within: Sequence[int] | None = None,
        owners: ChunkOwnerCache | None = None,
    ) -> None:
        self.base = base
        self.query = query
        self._within = within
        self._included = None if within is None else frozenset(within)
        self._tx = tx
        self._indexes = indexes
        self._owners = owners
        self._confirmed: dict[int, Confirmation] = {}
        self._recipes: dict[str, list[Recipe]] | None = None
        self._channels: dict[tuple[str, int], ChannelResult] = {}
        self._failed: dict[str, WorkError] = {}  # channels that failed, at least in part
        self._unavailable: set[str] = set()  # channels that failed entirely

    def includes(self, chunk: int) -> bool:
        """Return whether the search includes a chunk."""
        return self._included is None or chunk in self._included

    def recipes(self, kind: str) -> list[Recipe]:
        """Return the recipes that serve documents, newest first."""
        if self._recipes is None:
            self._recipes = served_recipes_of_base(self._tx, self.base.key)
        return self._recipes.get(kind, [])

    def search_direct(self, kinds: Collection[str]) -> dict[str, ChannelResult]:
        """Return the results of the direct channels; a failing provider affects only its own channel.

        So a base without its embedding model can still be searched by words.
        """
        found: dict[str, ChannelResult] = {}
        for kind in kinds:
            if kind in self._unavailable or not self.recipes(kind):
                continue
            try:
                found[kind] = self.search_channel(kind)
            except WorkError:
                self._unavailable.add(kind)
        return found

    def search_channel(self, kind: str, limit: int = DEPTH) -> ChannelResult:
        """Return the served hits of an index.

        While a base changes its model, both recipes are searched; if one fails, the other still counts.
        """
        if (kind, limit) not in self._channels:
            parts = [
                part for recipe in self.recipes(kind) if (part := self._try_recipe(kind, recipe, limit)) is not None
            ]
            if not parts and self.recipes(kind):
                raise self._failed[kind]
            self._channels[kind, limit] = parts[0] if len(parts) == 1 else combine_recipes(kind, parts)
        return self._channels[kind, limit]

    def require_any_channel(self, kinds: Collection[str]) -> None:
        """Raise if all of these channels failed."""
        asked = [kind for kind in kinds if self.recipes(kind)]
        if asked and self._unavailable.issuperset(asked):
            raise _all_failed(self.base, {kind: self._failed[kind] for kind in asked})

    def _try_recipe(self, kind: str, recipe: Recipe, limit: int) -> ChannelResult | None:
        """Search an index by one recipe; None if that fails, and the error is recorded."""
        try:
            return self._search_recipe(kind, recipe, limit)
        except WorkError as error:
            log.warning("search.channel_left_out base=%s kind=%s code=%s", self.base.key, kind, error.code)
            self._failed.setdefault(kind, error)
            return None

    def add_rescored(self, channel: ChannelResult, chunks: Sequence[int]) -> ChannelResult:
        """Add the scores of an index for chunks that only other channels found, if it can score them."""
        index = self._indexes[channel.name]
        if not isinstance(index, Rescores) or len(self.recipes(channel.name)) != 1:
            return channel
        (recipe,) = self.recipes(channel.name)
        known = {chunk for chunk, _ in channel.hits}
        try:
            others, middle = index.scores(recipe, self.query, [chunk for chunk in chunks if chunk not in known])
        except WorkError as error:  # the channel itself has answered
            self._failed.setdefault(channel.name, error)
            return channel
        return replace(channel, floor=middle, others=others)

    def confirm(self, kind: str, recipe: Recipe, chunks: Sequence[int]) -> set[int]:
        """Return the chunks that are served; a chunk in several generations is shown in the newest."""
        found = confirm_chunks(self._tx, self.base.key, kind, recipe.id, chunks, owners=self._owners)
        if self._owners is not None:
            self._indexes.search_memory.use("owners", self._owners.bytes, self._owners.clear)
        confirmed = self._confirmed
        for chunk, (document, generation, build) in found.items():
            known = confirmed.get(chunk)
            if known is None or known[:2] < (generation, build):
                confirmed[chunk] = Confirmation(generation, build, document, kind, recipe.id)
        return set(found)

    def read_hits(self, fused: Iterable[FusedHit], limit: int = DEPTH) -> Hits:
        """Return the best hits; of a document that two lists serve at this moment, only those of the newer list.

        An index that was built later from the same list hides nothing.
        """
        newest: dict[int, int] = {}
        for _, build, document, _, _ in self._confirmed.values():
            if build > newest.get(document, 0):
                newest[document] = build
        best = list(islice((hit for hit in fused if self._is_newest(hit.chunk, newest)), limit))
        read = self._read_passages([hit.chunk for hit in best])
        # A listed chunk without a row is damage that the doctor reports; the search skips it.
        there = [hit for hit in best if hit.chunk in read]
        return Hits(
            (_hit(rank, read[hit.chunk], hit) for rank, hit in enumerate(there, start=1)),
            (to_notice(channel, error) for channel, error in self._failed.items()),
        )

    def _is_newest(self, chunk: int, newest: Mapping[int, int]) -> bool:
        confirmed = self._confirmed[chunk]
        return confirmed.build == newest[confirmed.document]

    def _read_passages(self, chunks: Sequence[int]) -> dict[int, ServedChunk]:
        """Read the passages by the recipe that confirmed each."""
        by_recipe: dict[tuple[str, int], list[int]] = {}
        for chunk in chunks:
            confirmation = self._confirmed[chunk]
            by_recipe.setdefault((confirmation.kind, confirmation.recipe), []).append(chunk)
        found: dict[int, ServedChunk] = {}
        for (kind, recipe), some in by_recipe.items():
            found |= read_served_chunks(self._tx, self.base.key, kind, recipe, some)
        return found

    def _search_recipe(self, kind: str, recipe: Recipe, limit: int) -> ChannelResult:
        """Query an index for more and more chunks until enough of them are served."""
        asked = limit
        for _ in range(TRIES):
            found: Sequence[Found] = self._indexes[kind].find(recipe, self.query, asked, self._within)
            shown = self.confirm(kind, recipe, [hit.chunk for hit in found])
            if len(shown) >= limit or len(found) < asked:
                break
            asked *= REFETCH_FACTOR
        return ChannelResult(name=kind, hits=[(hit.chunk, hit.score) for hit in found if hit.chunk in shown][:limit])


def _hit(rank: int, passage: ServedChunk, fused: FusedHit) -> Hit:
    return Hit(
        document=passage.document,
        name=passage.name,
        chunk=passage.chunk,
        generation=passage.generation,
        start=passage.start,
        end=passage.end,
        headings=passage.headings,
        text=passage.text,
        rank=rank,
        score=fused.score,
        title=passage.title,
        channels=dict(fused.channels),
    )


def _all_failed(base: Base, failed: Mapping[str, WorkError]) -> WorkError:
    """Return one error for all channels; it is transient if one of them is."""
    params = {"base": base.name, "detail": " ".join(f"{kind}: {error}" for kind, error in failed.items())}
    later = next((error for error in failed.values() if isinstance(error, Transient)), None)
    if later is None:
        return Permanent("search_failed", params=params)
    return Transient("search_failed", params=params, retry_after=later.retry_after)


def to_fused_hits(channel: ChannelResult) -> list[FusedHit]:
    """Return the hits of one channel in the order of the channel; its scores may have any scale."""
    return [
        FusedHit(chunk, score, {channel.name: ChannelScore(score=score, rank=rank)})
        for rank, (chunk, score) in enumerate(channel.hits, start=1)
    ]


def combine_recipes(kind: str, parts: Sequence[ChannelResult]) -> ChannelResult:
    """Combine the results of several recipes, whose scores are not comparable."""
    hits = {chunk: score for part in parts for chunk, score in fuse([part], {}).scores.items()}
    return ChannelResult(name=kind, hits=sorted(hits.items(), key=lambda hit: (-hit[1], hit[0])))
