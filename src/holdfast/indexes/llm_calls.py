"""What a language model says about chunks: from memos, and only then from the model, several at once.

As with vectors, an answer is stored the moment it arrives and used as read back. What is wrong with one chunk costs no
other its answer; what is wrong with the provider stops the work, and whatever arrived before is kept.
"""

from __future__ import annotations

import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from holdfast.content.token_estimate import estimate
from holdfast.errors import WorkError
from holdfast.llm import Bill, Entry, Usage, Use, allow, memo_key, never, usage_of
from holdfast.llm.failures import OF_ONE_TEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from holdfast.catalog import Base, Piece
    from holdfast.engine import Ticket
    from holdfast.llm import Completion, Memos, Metered, Paid, Provider

ROOM = 1_000  # tokens that a question and its answer need beside the text, for a budget
AT_ONCE = 8  # calls under way; the provider may allow fewer
OF_ONE_CHUNK = OF_ONE_TEXT | {"bad_answer"}  # even after a repair: asking again would cost the same and bring the same


class Said(NamedTuple):
    """What came of some chunks: answers by chunk, and the chunks for which there is none."""

    made: Mapping[int, str]
    refused: Mapping[int, WorkError]


class Speaker:
    """Asks one kind of question about chunks: `make` asks the model about one of them and returns what is kept."""

    def __init__(
        self,
        provider: Metered,
        memos: Memos,
        *,
        kind: str,
        recipe: str,
        make: Callable[[Provider, Piece, Paid], str],
    ) -> None:
        self._provider = provider
        self._memos = memos
        self._kind = kind
        self._recipe = recipe
        self._make = make

    @property
    def model(self) -> str:
        """What answers depend on beside the chunk."""
        return f"{self._provider.chat_model}@{self._provider.version}"

    def ask(
        self, base: Base, ticket: Ticket, pieces: Sequence[Piece], go_on: Callable[[int], None]
    ) -> Generator[Said, None, None]:
        """Ask about chunks of one document, in parts; `go_on` is told how many are done, and may raise.

        Whoever stops reading closes this: what is under way and paid for is then waited for and kept.
        """
        keyed: dict[str, list[Piece]] = {}
        for piece in pieces:
            keyed.setdefault(memo_key(self._kind, f"{self.model}/{self._recipe}", piece.whole), []).append(piece)
        done = 0
        with closing(self._parts(base, ticket, keyed)) as parts:
            for part in parts:
                yield part
                done += len(part.made) + len(part.refused)
                go_on(done)

    def _parts(self, base: Base, ticket: Ticket, keyed: Mapping[str, Sequence[Piece]]) -> Generator[Said, None, None]:
        """Ask for what is not known yet; whatever arrives is kept before it is used, also if nobody reads on."""
        tenant = base.settings.tenant
        uses = {key: Use(ticket, key, [piece.chunk for piece in some]) for key, some in keyed.items()}
        known = self._memos.recall(tenant, list(uses.values()), self._saved)
        if known:
            yield _spread(keyed, {key: value.decode() for key, value in known.items()}, {})
        wanted = {key: some[0] for key, some in keyed.items() if key not in known}
        allow(self._memos, base, sum(estimate(piece.whole) + ROOM for piece in wanted.values()))
        left = threading.Event()
        for key, said in self._asked(self._provider.charged(base, self._kind, ticket=ticket), wanted, left.is_set):
            if isinstance(said.answer, WorkError):
                part = _spread(keyed, {}, {key: said.answer})
            else:
                entry = Entry(
                    ticket, key, said.answer.encode(), uses[key].chunks, said.usage.tokens_in, said.usage.tokens_out
                )
                stored = self._memos.keep(tenant, [entry])
                part = _spread(keyed, {key: stored.get(key, entry.value).decode()}, {})
            if not left.is_set():
                try:
                    yield part
                except GeneratorExit:
                    left.set()

    def _asked(
        self, provider: Provider, wanted: Mapping[str, Piece], enough: Callable[[], bool] = never
    ) -> Iterator[tuple[str, _Answer]]:
        """Ask several at once, and give out each answer as it arrives; no new call begins after a failure."""
        waiting = iter(wanted.items())
        under_way: dict[Future[_Answer], str] = {}
        failure: WorkError | None = None
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="holdfast-speaker") as pool:
            while True:
                while failure is None and not enough() and len(under_way) < AT_ONCE and (one := next(waiting, None)):
                    under_way[pool.submit(self._one, provider, one[1])] = one[0]
                if not under_way:
                    break
                ended, _ = wait(under_way, return_when=FIRST_COMPLETED)
                for future in ended:
                    key, answer = under_way.pop(future), future.result()
                    if isinstance(answer.answer, WorkError) and answer.answer.code not in OF_ONE_CHUNK:
                        failure = answer.answer
                    else:
                        yield key, answer
        if failure is not None:
            raise failure

    def _one(self, provider: Provider, piece: Piece) -> _Answer:
        """Ask about one chunk; what it cost is known even if nothing came of it."""
        bill: list[Completion] = []
        try:
            answer: str | WorkError = self._make(provider, piece, bill.append)
        except WorkError as error:
            answer = error
        return _Answer(answer, sum(map(usage_of, bill), Usage()))

    @property
    def _saved(self) -> Bill:
        """What a known answer is entered under."""
        return Bill(kind=self._kind, model=self.model, texts=0)


class _Answer(NamedTuple):
    """What came of one chunk, and what it cost."""

    answer: str | WorkError
    usage: Usage


def _spread(keyed: Mapping[str, Sequence[Piece]], made: Mapping[str, str], refused: Mapping[str, WorkError]) -> Said:
    """Give every chunk the answer to its text."""
    return Said(
        made={piece.chunk: value for key, value in made.items() for piece in keyed[key]},
        refused={piece.chunk: error for key, error in refused.items() for piece in keyed[key]},
    )
