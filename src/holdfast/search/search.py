"""Sends a query to every channel, and shows only hits that are served.

Channels propose chunks from indexes and caches that may be outdated. One snapshot confirms all proposals; a channel
with too few confirmed hits is queried for more. Then the channels are fused into one ranking, weighted by their
calibration on this base.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from holdfast.catalog import ChunkLists, ChunkOwnerCache, read_served_chunks, served_recipes
from holdfast.search import statements as sql
from holdfast.search.calibration import Calibrations
from holdfast.search.fusion import FULLTEXT, GRAPH, HYBRID, QUESTIONS, VECTOR, ChannelResult, FusedHit, Ranking, fuse
from holdfast.search.graph_links import GraphLinks
from holdfast.search.graph_walk import walk
from holdfast.search.search_run import DEPTH, SearchRun, to_fused_hits

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from holdfast.catalog import Base, ServedChunk
    from holdfast.db import Database, Transaction
    from holdfast.indexes import IndexRegistry
    from holdfast.indexes.fulltext import FulltextIndex
    from holdfast.indexes.graph import GraphIndex
    from holdfast.search.calibration import Calibration
    from holdfast.search.results import Hits

LISTED_FIRST = (FULLTEXT, VECTOR, QUESTIONS, GRAPH)  # channels of other packages follow in alphabetical order


class Searcher:
    """Searches the bases of one database."""

    def __init__(self, database: Database, indexes: IndexRegistry) -> None:
        self._database = database
        self._indexes = indexes
        self._chunk_lists = ChunkLists(database)
        self._owners = ChunkOwnerCache()
        self._calibrations = Calibrations(database)
        self._links: dict[tuple[int, int | None], GraphLinks] = {}

    @property
    def channels(self) -> list[str]:
        """The channels, one for each installed index."""
        kinds = self._indexes.kinds
        return [
            *(kind for kind in LISTED_FIRST if kind in kinds),
            *(kind for kind in kinds if kind not in LISTED_FIRST),
        ]

    @property
    def direct_channels(self) -> list[str]:
        """The channels that search by the query itself; the graph starts from their hits."""
        return [kind for kind in self.channels if kind != GRAPH]

    def search(
        self,
        base: Base,
        query: str,
        limit: int = 10,
        *,
        documents: Collection[int] | None = None,
        channels: Collection[str] | None = None,
    ) -> Hits:
        """Return the best passages for a query, from all channels together.

        `documents` and `channels` limit the search. A failed channel is left out and reported in `notices`; if all
        fail, this raises.
        """
        with self._database.shared_reading() as tx:
            run = self._begin_run(tx, base, query, _read_document_chunks(tx, base, documents))
            return run.read_hits(self._rank_channels(run, self.channels if channels is None else channels), limit)

    def read_served(self, base: Base, kind: str, chunks: Sequence[int]) -> dict[int, ServedChunk]:
        """Return the chunks among these that an index serves now."""
        found: dict[int, ServedChunk] = {}
        with self._database.shared_reading() as tx:
            for recipe in served_recipes(tx, base.key, kind):
                found |= read_served_chunks(tx, base.key, kind, recipe, chunks)
        return found

    def search_channel(self, base: Base, kind: str, query: str, limit: int = DEPTH) -> Hits:
        """Return the hits of one channel."""
        with self._database.shared_reading() as tx:
            run = self._begin_run(tx, base, query)
            if kind == GRAPH:
                walked = self._walk_graph(run, self._fuse_direct(run))
                return run.read_hits(to_fused_hits(walked) if walked else [], limit)
            return run.read_hits(to_fused_hits(run.search_channel(kind, limit)), limit)

    def compare_channels(self, base: Base, query: str) -> dict[str, Hits]:
        """Return the hits of each channel, and of all together as `hybrid`, from one snapshot."""
        with self._database.shared_reading() as tx:
            run = self._begin_run(tx, base, query)
            fused = self._fuse_direct(run)
            walked = self._walk_graph(run, fused)
            channels = run.search_direct(self.direct_channels).values()
            found = {
                channel.name: run.read_hits(to_fused_hits(channel))
                for channel in [*channels, *([walked] if walked else [])]
            }
            found[HYBRID] = run.read_hits(fused.add(walked) if walked else fused)
        return found

    def clear_caches(self) -> None:
        """Drop all calibrations and links; the next query reads them again."""
        self._calibrations.clear()
        self._owners = ChunkOwnerCache()
        self._links.clear()

    def _rank_channels(self, run: SearchRun, channels: Collection[str]) -> Iterable[FusedHit]:
        """Fuse some channels. The graph starts from the hits of all others, selected or not."""
        direct = [kind for kind in self.direct_channels if kind in channels]
        fused = self._fuse_direct(run, direct)
        walked = self._walk_graph(run, fused) if GRAPH in channels else None
        run.require_any_channel(channels)
        if not direct:
            return to_fused_hits(walked) if walked else []
        return fused.add(walked) if walked else fused

    def get_calibration(self, base: Base) -> Calibration:
        """Return the calibration of a base."""
        with self._database.shared_reading() as tx:
            return self._calibrate_run(self._begin_run(tx, base, ""))

    def _begin_run(self, tx: Transaction, base: Base, query: str, within: Sequence[int] | None = None) -> SearchRun:
        return SearchRun(tx, self._indexes, base, query, within=within, owners=self._owners)

    def _fuse_direct(self, run: SearchRun, kinds: Collection[str] = ()) -> Ranking:
        """Fuse the direct channels among `kinds`, or all of them if it is empty."""
        known = run.search_direct(kinds or self.direct_channels)
        for kind in known:
            others = [chunk for other, result in known.items() if other != kind for chunk, _ in result.hits]
            known[kind] = run.add_rescored(known[kind], others)
        return fuse(known.values(), self._calibrate_run(run).weights if len(known) > 1 else {})

    def _walk_graph(self, run: SearchRun, fused: Ranking) -> ChannelResult | None:
        """Follow names from the best hits and from the query; None if the base has no graph."""
        links = self._get_links(run)
        if links is None:
            return None
        measured, known = self._calibrate_run(run), links.load_definitions()
        walked = walk(
            fused.scores,
            links.find_query_links(known, run.query),
            partial(links.find_chunk_links, known),
            chunks=measured.chunks,
            trusted=measured.link_trust,
        )
        shown = run.confirm(GRAPH, run.recipes(GRAPH)[0], [chunk for chunk, _ in walked if run.includes(chunk)])
        return ChannelResult(name=GRAPH, hits=[(chunk, score) for chunk, score in walked if chunk in shown])

    def _calibrate_run(self, run: SearchRun) -> Calibration:
        return self._calibrations.get(run.base, [kind for kind in self.channels if run.recipes(kind)])

    def _get_links(self, run: SearchRun) -> GraphLinks | None:
        """Return the links of the newest recipe; one query never combines two versions of the rules."""
        recipes, words = run.recipes(GRAPH), run.recipes(FULLTEXT)
        if not recipes:
            return None
        key = (recipes[0].id, words[0].id if words else None)
        if key not in self._links:
            fulltext = cast("FulltextIndex", self._indexes[FULLTEXT])
            graph = cast("GraphIndex", self._indexes[GRAPH])
            self._links[key] = GraphLinks(graph, recipes[0], self._chunk_lists, (fulltext, words[0]) if words else None)
        links = self._links[key]
        self._indexes.search_memory.use(("mentions", key), links.bytes, links.clear)
        return links


def _read_document_chunks(tx: Transaction, base: Base, documents: Collection[int] | None) -> list[int] | None:
    """Return the chunks of some documents; None means all."""
    if documents is None:
        return None
    rows = tx.run(sql.SELECT_CHUNKS_OF_DOCUMENTS, [[str(document)] for document in set(documents)], base=base.key)
    return [chunk for (chunk,) in rows]
