"""The ties of a base, read where a walk asks for them: who defines what a text names, who names what a text defines.

Rules see most names. A title that they would not see, in lower case or in a language without capitals, is found by its
words: in a text by the dictionary of titles, in the base by asking full text for the phrase.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from holdfast.content.names import Source, bare_words, names
from holdfast.indexes.graph_rows import NAMED
from holdfast.search.walking import HUB, Tie, Via

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.indexes.fulltext import FulltextIndex
    from holdfast.indexes.graph import GraphIndex
    from holdfast.library.builds import Builds
    from holdfast.library.catalogue import Recipe

MOST = 5 * HUB  # who names a title is counted so far
REMEMBERED = 10_000  # titles of which it is remembered
BELIEVED_SECONDS = 60.0  # how long it is believed who names a title


class Heard(NamedTuple):
    """Who names a title, and when that was asked."""

    chunks: Sequence[int]
    at: float


class Ties:
    """Ties of the graph of one recipe; `words` is the full text that phrases are asked of, if there is one."""

    def __init__(
        self, graph: GraphIndex, recipe: Recipe, builds: Builds, words: tuple[FulltextIndex, Recipe] | None
    ) -> None:
        self._graph = graph
        self._recipe = recipe
        self._builds = builds
        self._words = words
        self._heard: dict[str, Heard] = {}

    def asked(self, query: str) -> list[Tie]:
        """Return the ties of the names in a query."""
        titles = self._graph.titles(self._recipe).find(bare_words(query))
        named = [one.key for one in names(query)]
        return self._forward(titles, named, self._graph.naming(self._recipe, [*titles, *named]))

    def of(self, chunks: Sequence[int]) -> Mapping[int, Sequence[Tie]]:
        """Return the ties of chunks."""
        titles = self._graph.titles(self._recipe)
        standing = {piece.chunk: titles.find(bare_words(piece.text)) for piece in self._builds.pieces(chunks)}
        roles = self._graph.named(self._recipe, chunks)
        keys = {key for found in standing.values() for key in found} | {key for one in roles.values() for key, _ in one}
        naming = self._graph.naming(self._recipe, keys)
        ties: dict[int, list[Tie]] = {}
        for chunk in chunks:
            named = [key for key, role in roles[chunk] if role == NAMED]
            ties[chunk] = self._forward(standing.get(chunk, []), named, naming)
            ties[chunk] += self._backward([(key, role) for key, role in roles[chunk] if role != NAMED], naming)
        return ties

    def naming(self, definitions: Sequence[tuple[str, str]]) -> dict[str, Sequence[int]]:
        """Return the chunks that name what is defined: by their words where it is a title, else by rules."""
        roles = self._graph.naming(self._recipe, [key for key, _ in definitions])
        return {
            key: self._naming(key, roles.get(key, {})) if _sought(key, role) else roles.get(key, {}).get(NAMED, ())
            for key, role in definitions
        }

    def _forward(
        self, titles: Iterable[str], named: Iterable[str], naming: Mapping[str, Mapping[str, Sequence[int]]]
    ) -> list[Tie]:
        """Tie a text to those that define what stands in it."""
        ties = []
        seen = set()
        for key in titles:
            roles = naming.get(key, {})
            seen.add(key)
            via = Via.TITLE if Source.TITLE in roles else Via.OPENING
            targets = _defining(roles)
            ties.append(Tie(via, targets, self._count(key, roles)))
        for key in named:
            roles = naming.get(key, {})
            if key not in seen and Source.OPENING in roles:
                ties.append(Tie(Via.OPENING, roles[Source.OPENING], self._count(key, roles)))
        return ties

    def _backward(
        self, defined: Iterable[tuple[str, str]], naming: Mapping[str, Mapping[str, Sequence[int]]]
    ) -> list[Tie]:
        """Tie a text to those that name what it defines."""
        ties = []
        for key, role in defined:
            roles = naming.get(key, {})
            if _sought(key, role):
                via = Via.NAMED if role == Source.TITLE else Via.OPENING_NAMED
                ties.append(Tie(via, self._naming(key, roles), self._count(key, roles)))
            elif len(roles.get(Source.OPENING, ())) == 1:
                ties.append(Tie(Via.OPENING_NAMED, roles.get(NAMED, ()), self._count(key, roles)))
        return ties

    def _count(self, key: str, roles: Mapping[str, Sequence[int]]) -> int:
        return max(len(self._naming(key, roles)), len(roles.get(NAMED, ())))

    def _naming(self, key: str, roles: Mapping[str, Sequence[int]]) -> Sequence[int]:
        """Return the chunks in which the words of a title stand."""
        if self._words is None:
            return roles.get(NAMED, ())
        known = self._heard.get(key)
        if known is None or time.monotonic() > known.at + BELIEVED_SECONDS:
            index, recipe = self._words
            if len(self._heard) >= REMEMBERED:
                self._heard.clear()
            known = self._heard[key] = Heard(index.phrase(recipe, key, MOST), time.monotonic())
        return known.chunks


def _sought(key: str, role: str) -> bool:
    """Tell whether a definition is found wherever its words stand, because rules would not see every mention."""
    return role == Source.TITLE or not key.isascii()


def _defining(roles: Mapping[str, Sequence[int]]) -> list[int]:
    return sorted({chunk for role, chunks in roles.items() if role != NAMED for chunk in chunks})
