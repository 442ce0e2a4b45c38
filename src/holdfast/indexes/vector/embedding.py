"""Texts become vectors: from memory, from memos, and only then from the provider.

Texts of many documents share a call. Of a paid answer each part is stored when it arrives and used as read back. A
text that occurs several times is asked for once.
"""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from holdfast.content.token_estimate import estimate
from holdfast.errors import Transient, WorkError
from holdfast.llm import EMPTY_TEXT, Bill, Entry, Use, allow, memo_key, readable, shares

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from holdfast.catalog import Base
    from holdfast.engine import Ticket
    from holdfast.indexes.base import Tools
    from holdfast.llm import Embedded, Memos, Metered, Vector

KIND = "embedding"
OTHER_LENGTH = "vector_length"  # the code of vectors that cannot stand beside those that are there
QUERY = "query"  # the kind of what is paid for questions, and for no document
PORTION = 256  # texts that are embedded between two checkpoints, where the provider is in this process


class Want(NamedTuple):
    """A text that needs a vector, and the chunk of whose work it is for."""

    ticket: Ticket
    chunk: int
    text: str


class Vectors(NamedTuple):
    """What came of some wants: vectors as bytes by chunk, and the chunks that were refused."""

    made: Mapping[int, bytes]
    refused: Mapping[int, WorkError]


class Embedders:
    """Chooses who embeds: for what is indexed by the settings of its base, for a query by who made what it is about.

    So a base on its way from one provider to another is searched by both.
    """

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    def of(self, base: Base) -> Embedder:
        """Return who embeds what is indexed in a base from now on."""
        return Embedder(self._tools.embedder_of(base), self._tools.memos)

    def by(self, model: str | None) -> Embedder | None:
        """Return who embeds by this model; None if nobody here does."""
        for provider in (self._tools.embedder, self._tools.here):
            if provider.embedding_model is not None and f"{provider.embedding_model}@{provider.version}" == model:
                return Embedder(provider, self._tools.memos)
        return None


class Embedder:
    """Embeds for one model of one provider."""

    def __init__(self, provider: Metered, memos: Memos) -> None:
        self.provider = provider
        self._memos = memos

    @property
    def model(self) -> str:
        """What the vectors depend on."""
        return f"{self.provider.embedding_model}@{self.provider.version}"

    def query(self, recipe: int, text: str, length: int) -> Vector | None:
        """Embed a query about rows of a recipe, whose vectors have this length; None if it has no meaning at all.

        The provider is asked once for a text, and the base pays. Raises a `WorkError` where the budget is spent, the
        provider is down or refuses the text, or its vectors have another length: there is no vector now, and everything
        else can still be searched. Only a vector of the right length and a refusal are remembered.
        """
        found = self._memos.remembered((QUERY, self.model, text, length), lambda: self._query(recipe, text, length))
        if isinstance(found, WorkError):
            raise found
        return found

    def _query(self, recipe: int, text: str, length: int) -> Vector | WorkError | None:
        payer = self._memos.payer(recipe) if self.provider.paid else None
        answer = self.provider.charged(payer, QUERY).embed([text])
        for refusal in answer.refused.values():
            return None if refusal.code == EMPTY_TEXT else refusal
        found = answer.vectors.shape[1]
        if found != length:
            raise Transient(
                OTHER_LENGTH,
                f"The embedding model answers with {found} numbers now, and the vectors of this index have {length}. "
                "The provider has another model under the same name. Set the one that made the index, or reindex it.",
            )
        return answer.vectors[0] if answer.vectors[0].any() else None

    def embed(
        self, base: Base, wants: Sequence[Want], go_on: Callable[[int], None], *, length: int | None = None
    ) -> Generator[Vectors, None, None]:
        """Embed the wanted texts in parts; `go_on` is told how many chunks are done, and may raise.

        Vectors must have this length, where it is known. Whoever stops reading closes this: what is under way and paid
        for is then waited for and kept.
        """
        paid, model = self.provider.paid, self.model
        keyed: dict[str, list[Want]] = {}
        for want in wants:
            key = memo_key(KIND, model, want.text) if paid else want.text
            keyed.setdefault(key, []).append(want)
        done = 0
        with closing(self._paid(base, keyed, length) if paid else self._free(keyed, length)) as parts:
            for part in parts:
                yield part
                done += len(part.made) + len(part.refused)
                go_on(done)

    def _free(self, keyed: Mapping[str, Sequence[Want]], length: int | None) -> Generator[Vectors, None, None]:
        """Embed what costs nothing, and is made again as fast as it is read."""
        keys = list(keyed)
        for first in range(0, len(keys), PORTION):
            portion = keys[first : first + PORTION]
            for part in self.provider.charged(None, KIND).embed_parts([keyed[key][0].text for key in portion]):
                require_length(part, length)
                yield _spread(keyed, _values(portion, part), _refused(portion, part))

    def _paid(
        self, base: Base, keyed: Mapping[str, Sequence[Want]], length: int | None
    ) -> Generator[Vectors, None, None]:
        """Embed what is not known yet; whatever arrives is kept before it is used, also if nobody reads on."""
        tenant = base.settings.tenant
        bill = Bill(kind=KIND, model=self.model, texts=0)
        known = self._memos.recall(tenant, list(_uses(keyed)), bill)
        if known:
            yield _spread(keyed, known, {})
        keys = [key for key in keyed if key not in known]
        if not keys:
            return
        texts = [keyed[key][0].text for key in keys]
        allow(self._memos, base, sum(map(estimate, texts)))
        left = threading.Event()
        provider = self.provider.charged(
            base, KIND, by_text={readable(keyed[key][0].text): keyed[key][0].ticket for key in keys}
        )
        for part in provider.embed_parts(texts, left.is_set):
            require_length(part, length)
            values, refused = _values(keys, part), _refused(keys, part)
            sizes = [estimate(keyed[key][0].text) for key in values]
            cost = dict(zip(values, shares(part.tokens, sizes), strict=True))
            entries = [
                Entry(use.ticket, use.key, values[use.key], use.chunks, tokens_in=cost[use.key])
                for use in _uses(keyed, values)
            ]
            stored = self._memos.keep(tenant, entries) if entries else {}
            if not left.is_set():
                try:
                    yield _spread(keyed, {**values, **stored}, refused)
                except GeneratorExit:
                    left.set()


def _uses(keyed: Mapping[str, Sequence[Want]], only: Mapping[str, object] | None = None) -> Iterator[Use]:
    """Name who uses which answer, by document."""
    for key in keyed if only is None else only:
        by_ticket: dict[Ticket, list[int]] = {}
        for want in keyed[key]:
            by_ticket.setdefault(want.ticket, []).append(want.chunk)
        for ticket, chunks in by_ticket.items():
            yield Use(ticket, key, chunks)


def require_length(part: Embedded, length: int | None) -> None:
    """Refuse vectors that cannot stand beside those that are there, before anything of them is kept."""
    if part.places and length is not None and part.vectors.shape[1] != length:
        raise Transient(
            OTHER_LENGTH,
            f"The vectors have {part.vectors.shape[1]} numbers now, and those of this index {length}. If this "
            "lasts, the provider has another model under the same name.",
        )


def _values(keys: Sequence[str], part: Embedded) -> dict[str, bytes]:
    return {keys[place]: row.tobytes() for place, row in zip(part.places, part.vectors, strict=True)}


def _refused(keys: Sequence[str], part: Embedded) -> dict[str, WorkError]:
    return {keys[place]: error for place, error in part.refused.items()}


def _spread(
    keyed: Mapping[str, Sequence[Want]], values: Mapping[str, bytes], refused: Mapping[str, WorkError]
) -> Vectors:
    """Give every chunk the answer to its text."""
    return Vectors(
        made={want.chunk: value for key, value in values.items() for want in keyed[key]},
        refused={want.chunk: error for key, error in refused.items() for want in keyed[key]},
    )
