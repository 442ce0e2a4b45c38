"""What a language model says about chunks: from memos, and only then from the model, several at once.

As with vectors, an answer is stored the moment it arrives and used as read back. What is wrong with one chunk costs no
other its answer; what is wrong with the provider stops the work, and whatever arrived before is kept.
"""

from __future__ import annotations

import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from holdfast.content.token_estimate import estimate_tokens
from holdfast.errors import WorkError
from holdfast.llm import AnswerLookup, Charge, PaidAnswer, Usage, answer_key, never_stop, require_budget
from holdfast.llm.failures import SINGLE_TEXT_CODES

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from holdfast.catalog import Base, ChunkText
    from holdfast.engine import Ticket
    from holdfast.llm import MeteredProvider, PaidAnswerCache, Provider

PROMPT_OVERHEAD_TOKENS = 1_000  # tokens that a question and its answer need beside the text, for a budget
MAX_CONCURRENT_CALLS = 8  # calls under way; the provider may allow fewer
CHUNK_ERROR_CODES = SINGLE_TEXT_CODES | {
    "bad_answer"
}  # even after a repair: asking again would cost the same and bring the same


class ChunkAnswers(NamedTuple):
    """What came of some chunks: answers by chunk, and the chunks for which there is none."""

    answers: Mapping[int, str]
    refused: Mapping[int, WorkError]


class ChunkLlmCalls:
    """Asks one kind of question about chunks: `make` asks the model about one of them and returns what is kept."""

    def __init__(
        self,
        provider: MeteredProvider,
        memos: PaidAnswerCache,
        *,
        kind: str,
        recipe: str,
        make: Callable[[Provider, ChunkText], tuple[str, Usage]],
    ) -> None:
        self._provider = provider
        self._paid_cache = memos
        self._kind = kind
        self._recipe = recipe
        self._call_model = make

    @property
    def model(self) -> str:
        """What answers depend on beside the chunk."""
        return f"{self._provider.chat_model}@{self._provider.version}"

    def ask(
        self, base: Base, ticket: Ticket, pieces: Sequence[ChunkText], go_on: Callable[[int], None]
    ) -> Generator[ChunkAnswers, None, None]:
        """Ask about chunks of one document, in parts; `go_on` is told how many are done, and may raise.

        Whoever stops reading closes this: what is under way and paid for is then waited for and kept.
        """
        keyed: dict[str, list[ChunkText]] = {}
        for piece in pieces:
            keyed.setdefault(answer_key(self._kind, f"{self.model}/{self._recipe}", piece.whole), []).append(piece)
        done = 0
        with closing(self._ask_in_parts(base, ticket, keyed)) as parts:
            for part in parts:
                yield part
                done += len(part.answers) + len(part.refused)
                go_on(done)

    def _ask_in_parts(
        self, base: Base, ticket: Ticket, keyed: Mapping[str, Sequence[ChunkText]]
    ) -> Generator[ChunkAnswers, None, None]:
        """Ask for what is not known yet; whatever arrives is kept before it is used, also if nobody reads on."""
        tenant = base.settings.tenant
        uses = {key: AnswerLookup(ticket, key, [piece.chunk for piece in some]) for key, some in keyed.items()}
        known = self._paid_cache.find_answers(tenant, list(uses.values()), self._saved_bill)
        if known:
            yield _assign_to_chunks(keyed, {key: value.decode() for key, value in known.items()}, {})
        wanted = {key: some[0] for key, some in keyed.items() if key not in known}
        require_budget(
            self._paid_cache,
            base,
            sum(estimate_tokens(piece.whole) + PROMPT_OVERHEAD_TOKENS for piece in wanted.values()),
        )
        left = threading.Event()
        for key, said in self._run_calls(
            self._provider.charge_to(base, self._kind, ticket=ticket), wanted, left.is_set
        ):
            if isinstance(said.answer, WorkError):
                part = _assign_to_chunks(keyed, {}, {key: said.answer})
            else:
                entry = PaidAnswer(
                    ticket, key, said.answer.encode(), uses[key].chunks, said.usage.tokens_in, said.usage.tokens_out
                )
                stored = self._paid_cache.store_answers(tenant, [entry])
                part = _assign_to_chunks(keyed, {key: stored.get(key, entry.value).decode()}, {})
            if not left.is_set():
                try:
                    yield part
                except GeneratorExit:
                    left.set()

    def _run_calls(
        self, provider: Provider, wanted: Mapping[str, ChunkText], enough: Callable[[], bool] = never_stop
    ) -> Iterator[tuple[str, _CallResult]]:
        """Ask several at once, and give out each answer as it arrives; no new call begins after a failure."""
        waiting = iter(wanted.items())
        under_way: dict[Future[_CallResult], str] = {}
        failure: WorkError | None = None
        with ThreadPoolExecutor(MAX_CONCURRENT_CALLS, thread_name_prefix="holdfast-speaker") as pool:
            while True:
                while (
                    failure is None
                    and not enough()
                    and len(under_way) < MAX_CONCURRENT_CALLS
                    and (one := next(waiting, None))
                ):
                    under_way[pool.submit(self._run_call, provider, one[1])] = one[0]
                if not under_way:
                    break
                ended, _ = wait(under_way, return_when=FIRST_COMPLETED)
                for future in ended:
                    key, answer = under_way.pop(future), future.result()
                    if isinstance(answer.answer, WorkError) and answer.answer.code not in CHUNK_ERROR_CODES:
                        failure = answer.answer
                    else:
                        yield key, answer
        if failure is not None:
            raise failure

    def _run_call(self, provider: Provider, piece: ChunkText) -> _CallResult:
        """Ask about one chunk. The ledger records the cost of a failed call (`llm.metering`)."""
        try:
            return _CallResult(*self._call_model(provider, piece))
        except WorkError as error:
            return _CallResult(error, Usage())

    @property
    def _saved_bill(self) -> Charge:
        """What a known answer is entered under."""
        return Charge(kind=self._kind, model=self.model, texts=0)


class _CallResult(NamedTuple):
    """What came of one chunk, and what it cost."""

    answer: str | WorkError
    usage: Usage


def _assign_to_chunks(
    keyed: Mapping[str, Sequence[ChunkText]], made: Mapping[str, str], refused: Mapping[str, WorkError]
) -> ChunkAnswers:
    """Give every chunk the answer to its text."""
    return ChunkAnswers(
        answers={piece.chunk: value for key, value in made.items() for piece in keyed[key]},
        refused={piece.chunk: error for key, error in refused.items() for piece in keyed[key]},
    )
