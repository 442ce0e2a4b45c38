"""Reads the links of a base for the graph walk: from a mention of a name to its definition, and back.

Rules find most names. A title that they would miss, in lower case or in a language without capitals, is found by its
words: in a text with the dictionary of titles, in the base with a phrase query to full text.

If a language model has read the texts, its entities count as mentioned under any wording, and a text that states a
relation is linked to all texts that mention one of its ends.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from holdfast.content import DefinitionOrigin, find_names, is_found_by_words, split_key_words
from holdfast.indexes.graph import NAMED_ROLE, list_word_spans, pick_longest
from holdfast.search.graph_walk import MAX_TARGETS, GraphLink, LinkType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.catalog import ChunkLists, Recipe
    from holdfast.indexes.fulltext import FulltextIndex
    from holdfast.indexes.graph import GraphIndex

MAX_MENTIONS = 5 * MAX_TARGETS  # of a title that are counted
MAX_CACHED_TITLES = 10_000
CACHE_SECONDS = 60.0  # how long the mentions of a title are cached
MAX_QUERY_WORDS = 40  # of a query that are searched for entities
STATED_ROLE = "stated"  # the role of the ends of a relation


class CachedMentions(NamedTuple):
    """The chunks that mention a title, and when they were read."""

    chunks: Sequence[int]
    read_at: float


class GraphLinks:
    """Links of one graph recipe; `words` is the full-text index for phrase queries, if there is one."""

    def __init__(
        self, graph: GraphIndex, recipe: Recipe, builds: ChunkLists, words: tuple[FulltextIndex, Recipe] | None
    ) -> None:
        self._graph = graph
        self._recipe = recipe
        self._chunk_lists = builds
        self._fulltext = words
        self._uses_model = graph.uses_model(recipe)
        self._cached_mentions: dict[str, CachedMentions] = {}

    def find_query_links(self, query: str) -> list[GraphLink]:
        """Return the links of the names in a query."""
        titles = self._graph.load_titles(self._recipe).find(split_key_words(query))
        named = [name.key for name in find_names(query)]
        links = self._link_to_definitions(
            titles, named, self._graph.find_chunks_by_role(self._recipe, [*titles, *named])
        )
        if not self._uses_model:
            return links
        spans = list_word_spans(split_key_words(query)[:MAX_QUERY_WORDS])
        stating = self._graph.find_stating_chunks(self._recipe, spans.values())
        entities = pick_longest(spans, stating)
        return links + self._link_by_relations(
            entities, self._graph.find_chunks_by_role(self._recipe, entities), stating
        )

    def find_chunk_links(self, chunks: Sequence[int]) -> Mapping[int, Sequence[GraphLink]]:
        """Return the links of chunks."""
        titles = self._graph.load_titles(self._recipe)
        standing = {
            piece.chunk: titles.find(split_key_words(piece.text)) for piece in self._chunk_lists.read_texts(chunks)
        }
        roles = self.read_roles(chunks)
        keys = {key for found in standing.values() for key in found} | {
            key for names in roles.values() for key, _ in names
        }
        naming = self._graph.find_chunks_by_role(self._recipe, keys)
        stating = self._graph.find_stating_chunks(self._recipe, keys) if self._uses_model else {}
        links: dict[int, list[GraphLink]] = {}
        for chunk in chunks:
            spoken = list(dict.fromkeys(key for key, _ in roles[chunk]))
            named = [key for key, role in roles[chunk] if role == NAMED_ROLE]
            defined = [(key, role) for key, role in roles[chunk] if role not in (NAMED_ROLE, STATED_ROLE)]
            known = [key for key in spoken if self._uses_model and _find_defining_chunks(naming.get(key, {}))]
            links[chunk] = self._link_to_definitions(dict.fromkeys([*standing.get(chunk, []), *known]), named, naming)
            links[chunk] += self._link_to_mentions(defined, naming)
            links[chunk] += self._link_by_relations(spoken, naming, stating)
        return links

    def read_roles(self, chunks: Sequence[int]) -> dict[int, list[tuple[str, str]]]:
        """Return the names that chunks mention, define and relate, as (key, role)."""
        found = self._graph.read_roles(self._recipe, chunks)
        if self._uses_model:
            for chunk, ends in self._graph.read_relation_ends(self._recipe, chunks).items():
                found[chunk] += [(key, STATED_ROLE) for key in dict.fromkeys(ends)]
        return found

    def find_mentions(self, spoken: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Sequence[int]]:
        """Return the other chunks that mention these names, by (key, role).

        A title is found by its words, other definitions by rules, and an end of a relation by the relations of other
        chunks.
        """
        roles = self._graph.find_chunks_by_role(self._recipe, [key for key, _ in spoken])
        stating = self._graph.find_stating_chunks(self._recipe, [key for key, role in spoken if role == STATED_ROLE])
        found: dict[tuple[str, str], Sequence[int]] = {}
        for key, role in spoken:
            if role == STATED_ROLE:
                found[key, role] = stating.get(key, ())
            elif is_found_by_words(key, role):
                found[key, role] = self._find_title_mentions(key, roles.get(key, {}))
            else:
                found[key, role] = roles.get(key, {}).get(NAMED_ROLE, ())
        return found

    def _link_to_definitions(
        self, titles: Iterable[str], named: Iterable[str], naming: Mapping[str, Mapping[str, Sequence[int]]]
    ) -> list[GraphLink]:
        """Link a text to the chunks that define the names in it."""
        links = []
        seen = set()
        for key in titles:
            roles = naming.get(key, {})
            seen.add(key)
            via = LinkType.TITLE if DefinitionOrigin.TITLE in roles else LinkType.OPENING
            targets = _find_defining_chunks(roles)
            links.append(GraphLink(via, targets, self._count_mentions(key, roles)))
        for key in named:
            roles = naming.get(key, {})
            if key not in seen and DefinitionOrigin.OPENING in roles:
                links.append(
                    GraphLink(LinkType.OPENING, roles[DefinitionOrigin.OPENING], self._count_mentions(key, roles))
                )
        return links

    def _link_to_mentions(
        self, defined: Iterable[tuple[str, str]], naming: Mapping[str, Mapping[str, Sequence[int]]]
    ) -> list[GraphLink]:
        """Link a text to the chunks that mention the names it defines."""
        links = []
        for key, role in defined:
            roles = naming.get(key, {})
            if is_found_by_words(key, role):
                via = LinkType.NAMED if role == DefinitionOrigin.TITLE else LinkType.OPENING_NAMED
                links.append(GraphLink(via, self._find_title_mentions(key, roles), self._count_mentions(key, roles)))
            elif len(roles.get(DefinitionOrigin.OPENING, ())) == 1:
                links.append(
                    GraphLink(LinkType.OPENING_NAMED, roles.get(NAMED_ROLE, ()), self._count_mentions(key, roles))
                )
        return links

    @staticmethod
    def _link_by_relations(
        spoken: Iterable[str], naming: Mapping[str, Mapping[str, Sequence[int]]], stating: Mapping[str, Sequence[int]]
    ) -> list[GraphLink]:
        """Link a text to the chunks with a relation of a name it mentions."""
        return [
            GraphLink(
                LinkType.RELATED, stating[key], max(len(stating[key]), len(naming.get(key, {}).get(NAMED_ROLE, ())))
            )
            for key in spoken
            if key in stating
        ]

    def _count_mentions(self, key: str, roles: Mapping[str, Sequence[int]]) -> int:
        return max(len(self._find_title_mentions(key, roles)), len(roles.get(NAMED_ROLE, ())))

    def _find_title_mentions(self, key: str, roles: Mapping[str, Sequence[int]]) -> Sequence[int]:
        """Return the chunks that contain the words of a title; cached for a minute."""
        if self._fulltext is None:
            return roles.get(NAMED_ROLE, ())
        known = self._cached_mentions.get(key)
        if known is None or time.monotonic() > known.read_at + CACHE_SECONDS:
            index, recipe = self._fulltext
            if len(self._cached_mentions) >= MAX_CACHED_TITLES:
                self._cached_mentions.clear()
            known = self._cached_mentions[key] = CachedMentions(
                index.find_phrase(recipe, key, MAX_MENTIONS), time.monotonic()
            )
        return known.chunks


def _find_defining_chunks(roles: Mapping[str, Sequence[int]]) -> list[int]:
    return sorted({chunk for role, chunks in roles.items() if role != NAMED_ROLE for chunk in chunks})
