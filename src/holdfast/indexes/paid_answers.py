"""Answers about chunks that are paid once: from the cache first, then from the provider.

The cache stores each answer before the caller receives it, and the caller receives the stored one: if two workers pay
for the same text, both use the answer that was stored first.
"""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from holdfast.llm import PaidAnswer, require_budget

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from holdfast.catalog import Base
    from holdfast.errors import WorkError
    from holdfast.llm import AnswerLookup, Charge, PaidAnswerCache

    Answers = Mapping[str, bytes]  # by cache key
    Refusals = Mapping[str, WorkError]  # by cache key
    StopRequested = Callable[[], bool]
    CallProvider = Callable[[Sequence[str], StopRequested], Iterable[tuple[Mapping[str, "Reply"], Refusals]]]


class Reply(NamedTuple):
    """A provider's answer to one text, and its share of the tokens."""

    value: bytes
    tokens_in: int
    tokens_out: int = 0


class ChunkResults(NamedTuple):
    """Answers by chunk, and the chunks that the provider refused."""

    answers: Mapping[int, bytes]
    refused: Mapping[int, WorkError]


def fetch_answers(
    cache: PaidAnswerCache,
    base: Base,
    lookups: Sequence[AnswerLookup],
    charge: Charge,
    *,
    estimate: Callable[[str], int],
    call: CallProvider,
) -> Generator[tuple[Answers, Refusals], None, None]:
    """Yield the cached answers, then those of the provider as they arrive.

    `estimate` returns the tokens to budget for a key, `call` asks the provider about the keys that the cache lacks. A
    caller that stops early closes this generator: calls under way are paid for, so it waits for them and stores them.
    """
    tenant = base.settings.tenant
    by_key: dict[str, list[AnswerLookup]] = {}
    for lookup in lookups:
        by_key.setdefault(lookup.key, []).append(lookup)
    known = cache.find_answers(tenant, lookups, charge)
    if known:
        yield known, {}
    wanted = [key for key in by_key if key not in known]
    if not wanted:
        return
    require_budget(cache, base, sum(map(estimate, wanted)))
    stopped = threading.Event()
    for replies, refused in call(wanted, stopped.is_set):
        entries = [
            PaidAnswer(lookup.ticket, key, reply.value, lookup.chunks, reply.tokens_in, reply.tokens_out)
            for key, reply in replies.items()
            for lookup in by_key[key]
        ]
        stored = cache.store_answers(tenant, entries) if entries else {}
        if not stopped.is_set():
            try:
                yield {key: stored.get(key, reply.value) for key, reply in replies.items()}, refused
            except GeneratorExit:
                stopped.set()


def assign_to_chunks(
    chunks: Mapping[str, Sequence[int]],
    parts: Generator[tuple[Answers, Refusals], None, None],
    report: Callable[[int], None],
) -> Generator[ChunkResults, None, None]:
    """Yield answers by chunk; `chunks` lists the chunks of each key.

    After each part, `report` receives the number of chunks done. It may raise to stop the work.
    """
    done = 0
    with closing(parts):
        for answers, refused in parts:
            part = ChunkResults(
                answers={chunk: value for key, value in answers.items() for chunk in chunks[key]},
                refused={chunk: error for key, error in refused.items() for chunk in chunks[key]},
            )
            yield part
            done += len(part.answers) + len(part.refused)
            report(done)
