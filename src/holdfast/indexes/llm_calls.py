"""Calls of a language model, several at once, about chunks or other subjects.

An error about one subject leaves the others alone. An error of the provider stops the work; answers that arrived
before it are kept.
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import TYPE_CHECKING, Generic, TypeVar

from holdfast.catalog import ChunkText
from holdfast.content import estimate_tokens
from holdfast.errors import WorkError
from holdfast.indexes.paid_answers import Reply, assign_to_chunks, fetch_answers
from holdfast.llm import SINGLE_TEXT_CODES, AnswerLookup, Charge, answer_key, never_stop

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from holdfast.catalog import Base
    from holdfast.engine import Ticket
    from holdfast.indexes.paid_answers import ChunkResults
    from holdfast.llm import MeteredProvider, PaidAnswerCache, Provider, Usage

Topic = TypeVar("Topic")

PROMPT_OVERHEAD_TOKENS = 1_000  # tokens of a prompt and its answer beside the text, for the budget
MAX_CONCURRENT_CALLS = 8  # the provider may allow fewer
# `bad_answer` comes after a repair turn: another call would cost the same and most likely fail again.
CHUNK_ERROR_CODES = SINGLE_TEXT_CODES | {"bad_answer"}


class LlmCalls(Generic[Topic]):
    """Calls a model about topics; `make` calls it about one topic and returns the text to store."""

    def __init__(
        self,
        provider: MeteredProvider,
        memos: PaidAnswerCache,
        *,
        kind: str,
        recipe: str,
        make: Callable[[Provider, Topic], tuple[str, Usage]],
    ) -> None:
        self._provider = provider
        self._paid_cache = memos
        self._kind = kind
        self._recipe = recipe
        self._call_model = make

    @property
    def model(self) -> str:
        """Model and version, part of every cache key."""
        return f"{self._provider.chat_model}@{self._provider.version}"

    @property
    def _charge(self) -> Charge:
        """The ledger entry for cached answers."""
        return Charge(kind=self._kind, model=self.model, texts=0)

    def cache_key(self, text: str) -> str:
        """Return the key under which the answer about a text is cached."""
        return answer_key(self._kind, f"{self.model}/{self._recipe}", text)

    def _run_calls(
        self, provider: Provider, wanted: Mapping[str, Topic], stop: Callable[[], bool] = never_stop
    ) -> Iterator[tuple[str, Reply | WorkError]]:
        """Run several calls at once and yield each result as it arrives; after a failure, start no new call."""
        waiting = iter(wanted.items())
        under_way: dict[Future[Reply | WorkError], str] = {}
        failure: WorkError | None = None
        with ThreadPoolExecutor(MAX_CONCURRENT_CALLS, thread_name_prefix="holdfast-speaker") as pool:
            while True:
                while failure is None and not stop() and len(under_way) < MAX_CONCURRENT_CALLS:
                    key, topic = next(waiting, (None, None))
                    if key is None or topic is None:
                        break
                    # In a copy of this context: log fields and the trace of the document belong to the call.
                    under_way[pool.submit(copy_context().run, self._run_call, provider, topic)] = key
                if not under_way:
                    break
                ended, _ = wait(under_way, return_when=FIRST_COMPLETED)
                for future in ended:
                    key, result = under_way.pop(future), future.result()
                    if isinstance(result, WorkError) and result.code not in CHUNK_ERROR_CODES:
                        failure = result
                    else:
                        yield key, result
        if failure is not None:
            raise failure

    def _run_call(self, provider: Provider, topic: Topic) -> Reply | WorkError:
        try:
            text, usage = self._call_model(provider, topic)
        except WorkError as error:
            return error
        return Reply(text.encode(), usage.tokens_in, usage.tokens_out)


class ChunkLlmCalls(LlmCalls[ChunkText]):
    """Calls a model about chunks."""

    def ask(
        self, base: Base, ticket: Ticket, pieces: Sequence[ChunkText], go_on: Callable[[int], None]
    ) -> Generator[ChunkResults, None, None]:
        """Call the model about chunks of one document, and yield the answers in parts.

        `go_on` receives the number of chunks done and may raise. A caller that stops early closes this generator:
        calls under way are then awaited and stored.
        """
        keyed = self._group_by_key(pieces)
        chunks = _chunks_by_key(keyed)

        def call(
            keys: Sequence[str], stop: Callable[[], bool]
        ) -> Iterator[tuple[dict[str, Reply], dict[str, WorkError]]]:
            provider = self._provider.charge_to(base, self._kind, ticket=ticket)
            for key, result in self._run_calls(provider, {key: keyed[key][0] for key in keys}, stop):
                yield ({}, {key: result}) if isinstance(result, WorkError) else ({key: result}, {})

        parts = fetch_answers(
            self._paid_cache,
            base,
            [AnswerLookup(ticket, key, same) for key, same in chunks.items()],
            self._charge,
            estimate=lambda key: estimate_tokens(keyed[key][0].whole) + PROMPT_OVERHEAD_TOKENS,
            call=call,
        )
        return assign_to_chunks(chunks, parts, go_on)

    def record_reuse(self, base: Base, ticket: Ticket, pieces: Sequence[ChunkText]) -> None:
        """Record on the ledger what the answers about these chunks cost, which are used again."""
        chunks = _chunks_by_key(self._group_by_key(pieces))
        lookups = [AnswerLookup(ticket, key, same) for key, same in chunks.items()]
        self._paid_cache.record_reuse(base.settings.tenant, lookups, self._charge)

    def _group_by_key(self, pieces: Sequence[ChunkText]) -> dict[str, list[ChunkText]]:
        keyed: dict[str, list[ChunkText]] = {}
        for piece in pieces:
            keyed.setdefault(self.cache_key(piece.whole), []).append(piece)
        return keyed


def _chunks_by_key(keyed: Mapping[str, Sequence[ChunkText]]) -> dict[str, list[int]]:
    return {key: [piece.chunk for piece in same] for key, same in keyed.items()}
