"""Reads the links of a base for the graph walk: from a mention of a name to its definition, and back.

Rules find most names. A title that they would miss, in lower case or in a language without capitals, is found by its
words: in a text with the dictionary of titles, in the base with a phrase query to full text.

Most names of a text are defined nowhere and lead to no other text; nothing more is read of them. Of the others, the
mentions are counted, but only the chunks of names with few mentions are read: the walk does not follow the others.

If a language model has read the texts, its entities count as mentioned under any wording, and a text that states a
relation is linked to all texts that mention one of its ends.
"""

from __future__ import annotations

import time
from array import array
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from holdfast.content import DefinitionOrigin, find_names, is_found_by_words, split_key_words
from holdfast.indexes.graph import NAMED_ROLE, list_word_spans, pick_longest
from holdfast.search.graph_walk import MAX_TARGETS, GraphLink, LinkType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.catalog import ChunkLists, Recipe
    from holdfast.indexes.fulltext import FulltextIndex
    from holdfast.indexes.graph import Definitions, GraphIndex

MAX_MENTIONS = 5 * MAX_TARGETS  # of a title that are counted
MAX_CACHED_NAMES = 10_000
BYTES_PER_NAME = 600  # of a cached name
CACHE_SECONDS = 60.0  # how long the mentions of a name are cached
MAX_QUERY_WORDS = 40  # of a query that are searched for entities
STATED_ROLE = "stated"  # the role of the ends of a relation


class CachedMentions(NamedTuple):
    """The mentions of a name, and when they were read."""

    by_rules: int  # chunks in which the rules have found the name
    by_words: int  # chunks with the words of the name, up to `MAX_MENTIONS`
    chunks: Sequence[int]  # those with its words; empty if the walk would not follow so many
    read_at: float


class LinkDraft(NamedTuple):
    """A link whose mentions are not counted yet."""

    link_type: LinkType
    key: str
    targets: Sequence[int] = ()
    to_words: bool = False  # the targets are the chunks with the words of the name
    to_rules: bool = False  # the targets are the chunks in which the rules have found the name


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

    @property
    def bytes(self) -> int:
        """The memory of the cached mentions, about."""
        return BYTES_PER_NAME * len(self._cached_mentions)

    def clear(self) -> None:
        self._cached_mentions = {}

    def load_definitions(self) -> Definitions:
        """Return the names that are defined now, for one walk."""
        return self._graph.load_definitions(self._recipe)

    def find_query_links(self, known: Definitions, query: str) -> list[GraphLink]:
        """Return the links of the names in a query."""
        titles = known.titles.find(split_key_words(query))
        drafts = _link_to_definitions(known, titles, [name.key for name in find_names(query)])
        if self._uses_model:
            spans = list_word_spans(split_key_words(query)[:MAX_QUERY_WORDS])
            stating = self._graph.find_stating_chunks(self._recipe, spans.values())
            drafts += _link_by_relations(pick_longest(spans, stating), stating)
        return self._complete(known, {0: drafts})[0]

    def find_chunk_links(self, known: Definitions, chunks: Sequence[int]) -> Mapping[int, Sequence[GraphLink]]:
        """Return the links of chunks."""
        standing = {
            piece.chunk: known.titles.find(split_key_words(piece.text))
            for piece in self._chunk_lists.read_texts(chunks)
        }
        roles = self.read_roles(chunks)
        keys = {key for names in roles.values() for key, _ in names}
        stating = self._graph.find_stating_chunks(self._recipe, keys) if self._uses_model else {}
        drafts: dict[int, list[LinkDraft]] = {}
        for chunk in chunks:
            spoken = list(dict.fromkeys(key for key, _ in roles[chunk]))
            titles = dict.fromkeys(standing.get(chunk, []))
            if self._uses_model:
                titles |= dict.fromkeys(key for key in spoken if known.count(key))
            named = [key for key, role in roles[chunk] if role == NAMED_ROLE]
            drafts[chunk] = [
                *_link_to_definitions(known, titles, named),
                *_link_to_mentions(known, roles[chunk]),
                *_link_by_relations(spoken, stating),
            ]
        return self._complete(known, drafts)

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
        by_words = self._find_phrases([key for key, role in spoken if is_found_by_words(key, role)])
        stating = self._graph.find_stating_chunks(self._recipe, [key for key, role in spoken if role == STATED_ROLE])
        named = self._graph.find_mentions(self._recipe, {key for key, _ in spoken} - {*by_words, *stating})
        found: dict[tuple[str, str], Sequence[int]] = {}
        for key, role in spoken:
            if role == STATED_ROLE:
                found[key, role] = stating.get(key, ())
            elif key in by_words:
                found[key, role] = by_words[key]
            else:
                found[key, role] = named.get(key, ())
        return found

    def _complete(self, known: Definitions, drafts: Mapping[int, Sequence[LinkDraft]]) -> dict[int, list[GraphLink]]:
        """Read the mentions of all drafted links together."""
        mentions = self._read_mentions(known, {draft.key for draft in chain.from_iterable(drafts.values())})
        few = {
            draft.key
            for draft in chain.from_iterable(drafts.values())
            if self._targets_are_by_rules(draft) and mentions[draft.key].by_rules <= MAX_TARGETS
        }
        named = self._graph.find_mentions(self._recipe, few)
        return {
            chunk: [self._complete_link(draft, mentions[draft.key], named) for draft in some]
            for chunk, some in drafts.items()
        }

    def _complete_link(
        self, draft: LinkDraft, mentions: CachedMentions, named: Mapping[str, Sequence[int]]
    ) -> GraphLink:
        if draft.link_type is LinkType.RELATED:
            return GraphLink(LinkType.RELATED, draft.targets, max(len(draft.targets), mentions.by_rules))
        targets = draft.targets
        if self._targets_are_by_rules(draft):
            targets = named.get(draft.key, ())
        elif draft.to_words:
            targets = mentions.chunks
        return GraphLink(draft.link_type, targets, max(mentions.by_rules, mentions.by_words))

    def _targets_are_by_rules(self, draft: LinkDraft) -> bool:
        return draft.to_rules or (draft.to_words and self._fulltext is None)

    def _read_mentions(self, known: Definitions, keys: Iterable[str]) -> dict[str, CachedMentions]:
        """Return the mentions of names; cached for a minute."""
        now = time.monotonic()
        cache = self._cached_mentions
        wanted = list(dict.fromkeys(keys))
        new = [key for key in wanted if key not in cache or now > cache[key].read_at + CACHE_SECONDS]
        if len(cache) + len(new) > MAX_CACHED_NAMES:
            cache = self._cached_mentions = {key: cache[key] for key in wanted if key not in new}
        rows = self._graph.count_rows(self._recipe, new) if new else {}
        phrases = self._find_phrases(new)
        for key in new:
            chunks = phrases.get(key, ())
            few = array("q", chunks) if len(chunks) <= MAX_TARGETS else ()
            cache[key] = CachedMentions(max(rows[key] - known.count(key), 0), len(chunks), few, now)
        return {key: cache[key] for key in wanted}

    def _find_phrases(self, keys: Sequence[str]) -> Mapping[str, Sequence[int]]:
        if self._fulltext is None or not keys:
            return {}
        index, recipe = self._fulltext
        return index.find_phrases(recipe, keys, MAX_MENTIONS)


def _link_to_definitions(known: Definitions, titles: Iterable[str], named: Iterable[str]) -> list[LinkDraft]:
    """Link a text to the chunks that define the names in it."""
    by_words = {
        key: LinkDraft(
            LinkType.TITLE if known.find(key, DefinitionOrigin.TITLE) else LinkType.OPENING, key, known.find_all(key)
        )
        for key in titles
    }
    by_rules = {
        key: LinkDraft(LinkType.OPENING, key, known.find(key, DefinitionOrigin.OPENING))
        for key in named
        if key not in by_words
    }
    drafts = [*by_words.values(), *by_rules.values()]
    return [draft for draft in drafts if 0 < len(draft.targets) <= MAX_TARGETS]


def _link_to_mentions(known: Definitions, roles: Iterable[tuple[str, str]]) -> list[LinkDraft]:
    """Link a text to the chunks that mention the names it defines."""
    drafts = []
    for key, role in roles:
        if role in (NAMED_ROLE, STATED_ROLE):
            continue
        if is_found_by_words(key, role):
            via = LinkType.NAMED if role == DefinitionOrigin.TITLE else LinkType.OPENING_NAMED
            drafts.append(LinkDraft(via, key, to_words=True))
        elif len(known.find(key, DefinitionOrigin.OPENING)) == 1:
            drafts.append(LinkDraft(LinkType.OPENING_NAMED, key, to_rules=True))
    return drafts


def _link_by_relations(spoken: Iterable[str], stating: Mapping[str, Sequence[int]]) -> list[LinkDraft]:
    """Link a text to the chunks with a relation of a name it mentions."""
    return [LinkDraft(LinkType.RELATED, key, stating[key]) for key in spoken if key in stating]
