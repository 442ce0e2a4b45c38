"""The ties of a base, read where a walk asks for them: who defines what a text names, who names what a text defines.

Rules see most names. A title that they would not see, in lower case or in a language without capitals, is found by its
words: in a text by the dictionary of titles, in the base by asking full text for the phrase.

Where a language model has read the texts, what it says a text names counts as named there, whatever words stand for it,
and a text that states a relation is tied to all that speak of one of its ends.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from holdfast.content.names import Source, bare_words, names
from holdfast.indexes.graph import NAMED, longest, runs
from holdfast.search.graph_walk import HUB, Tie, Via

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.catalog import Builds, Recipe
    from holdfast.indexes.fulltext import FulltextIndex
    from holdfast.indexes.graph import GraphIndex

MOST = 5 * HUB  # who names a title is counted so far
REMEMBERED = 10_000  # titles of which it is remembered
BELIEVED_SECONDS = 60.0  # how long it is believed who names a title
WORDS = 40  # of a query in which entities are looked for
STATED = "stated"  # what a chunk does with the ends of its relations


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
        self._told = graph.told(recipe)
        self._heard: dict[str, Heard] = {}

    def asked(self, query: str) -> list[Tie]:
        """Return the ties of the names in a query."""
        titles = self._graph.titles(self._recipe).find(bare_words(query))
        named = [one.key for one in names(query)]
        ties = self._forward(titles, named, self._graph.naming(self._recipe, [*titles, *named]))
        if not self._told:
            return ties
        spans = runs(bare_words(query)[:WORDS])
        stating = self._graph.stating(self._recipe, spans.values())
        entities = longest(spans, stating)
        return ties + self._related(entities, self._graph.naming(self._recipe, entities), stating)

    def of(self, chunks: Sequence[int]) -> Mapping[int, Sequence[Tie]]:
        """Return the ties of chunks."""
        titles = self._graph.titles(self._recipe)
        standing = {piece.chunk: titles.find(bare_words(piece.text)) for piece in self._builds.pieces(chunks)}
        roles = self.roles(chunks)
        keys = {key for found in standing.values() for key in found} | {key for one in roles.values() for key, _ in one}
        naming = self._graph.naming(self._recipe, keys)
        stating = self._graph.stating(self._recipe, keys) if self._told else {}
        ties: dict[int, list[Tie]] = {}
        for chunk in chunks:
            spoken = list(dict.fromkeys(key for key, _ in roles[chunk]))
            named = [key for key, role in roles[chunk] if role == NAMED]
            defined = [(key, role) for key, role in roles[chunk] if role not in (NAMED, STATED)]
            known = [key for key in spoken if self._told and _defining(naming.get(key, {}))]
            ties[chunk] = self._forward(dict.fromkeys([*standing.get(chunk, []), *known]), named, naming)
            ties[chunk] += self._backward(defined, naming)
            ties[chunk] += self._related(spoken, naming, stating)
        return ties

    def roles(self, chunks: Sequence[int]) -> dict[int, list[tuple[str, str]]]:
        """Return what chunks name, define and relate: keys, each with what the chunk does with it."""
        found = self._graph.named(self._recipe, chunks)
        if self._told:
            for chunk, ends in self._graph.related(self._recipe, chunks).items():
                found[chunk] += [(key, STATED) for key in dict.fromkeys(ends)]
        return found

    def naming(self, spoken: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Sequence[int]]:
        """Return who else speaks of what chunks define or relate.

        Of a definition these are who names it, by their words where it is a title, else by rules; of a relation's end
        those who state a relation of it.
        """
        roles = self._graph.naming(self._recipe, [key for key, _ in spoken])
        stating = self._graph.stating(self._recipe, [key for key, role in spoken if role == STATED])
        found: dict[tuple[str, str], Sequence[int]] = {}
        for key, role in spoken:
            if role == STATED:
                found[key, role] = stating.get(key, ())
            elif _sought(key, role):
                found[key, role] = self._naming(key, roles.get(key, {}))
            else:
                found[key, role] = roles.get(key, {}).get(NAMED, ())
        return found

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

    @staticmethod
    def _related(
        spoken: Iterable[str], naming: Mapping[str, Mapping[str, Sequence[int]]], stating: Mapping[str, Sequence[int]]
    ) -> list[Tie]:
        """Tie a text to those that state a relation of what it speaks of."""
        return [
            Tie(Via.RELATED, stating[key], max(len(stating[key]), len(naming.get(key, {}).get(NAMED, ()))))
            for key in spoken
            if key in stating
        ]

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
