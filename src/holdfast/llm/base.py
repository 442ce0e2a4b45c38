"""The contract of providers of embeddings and language models, and its value types.

A provider is stateless: it neither waits nor retries. It raises `Transient` or `Outage` for failures that may pass and
`Permanent` for all others; the state of the slot decides what follows. The caller stores each part of an answer when it
arrives, so `embed_parts` returns parts, and a text that the provider refuses does not affect the others.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.errors import Permanent
from holdfast.llm.failures import bad_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import TypeAlias

    import numpy as np
    from numpy.typing import NDArray

    from holdfast.errors import WorkError

    Vector: TypeAlias = NDArray[np.float32]  # one text
    Matrix: TypeAlias = NDArray[np.float32]  # one row for each text


def never_stop() -> bool:
    return False


FENCED = re.compile(r"\A\s*```[a-z]*\s*\n(.*?)\n?```\s*\Z", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Embeddings:
    """Vectors of some texts of one call: row k of `vectors` belongs to the text at `positions[k]` of that call.

    A text that the provider always rejects is in `refused` instead. Vectors are float32 and of any length; a zero
    vector means that the provider found no meaning in the text.
    """

    positions: tuple[int, ...]
    vectors: Matrix
    tokens: int = 0  # as reported by the provider; 0 if it does not report them
    refused: Mapping[int, WorkError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A request to a language model; with a schema, the answer should be JSON that matches it."""

    text: str
    system: str = ""
    schema: Mapping[str, Any] | None = None
    max_tokens: int = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """An answer of a language model, and its cost."""

    text: str
    tokens_in: int = 0
    tokens_out: int = 0
    truncated: bool = False  # the model had not finished: token limit reached, or the stream broke off

    def json(self) -> Any:
        """Parse the answer as JSON, also from a code fence; the schema is not checked."""
        fenced = FENCED.match(self.text)
        try:
            return json.loads(fenced[1] if fenced else self.text)
        except ValueError as error:
            raise bad_answer("answer_not_json") from error


class MeteredRequest(Protocol):
    """Collects the cost of one request. Without a report the cost is estimated."""

    def report_tokens(self, tokens_in: int, tokens_out: int) -> None:
        """Record the usage that the provider reports; the last report counts, and zero tokens are no report."""
        ...

    def add_output(self, words: str) -> None:
        """Record a part of the answer, to estimate the cost if it is not reported or the stream breaks off."""
        ...

    def mark_unbilled(self) -> None:
        """Record that the provider did no work, so the request costs nothing."""
        ...


class Meter(Protocol):
    """Accounts for each request to a paid provider, before it is sent and when its cost is known."""

    def __call__(self, model: str, texts: Sequence[str], most_out: int = 0) -> AbstractContextManager[MeteredRequest]:
        """Return a context manager around one request with these texts and at most `most_out` tokens of answer.

        Entering raises `Permanent("budget_spent")` if the budget is exhausted. The exit always records the cost.
        """
        ...


class ModelInfo(Protocol):
    """The models of a provider."""

    @property
    def embedding_model(self) -> str | None: ...

    @property
    def dimension(self) -> int | None:
        """The length of each vector; None if it is known only from the first answer."""
        ...

    @property
    def chat_model(self) -> str | None: ...

    @property
    def version(self) -> str:
        """Everything else that answers depend on; another version is another recipe."""
        ...

    @property
    def paid(self) -> bool:
        """Whether answers are cached; free answers are computed as fast as they are read."""
        ...


class UnmeteredProvider(ModelInfo, Protocol):
    """A provider that cannot be called without a meter, so that no paid call is missing from the ledger."""

    def with_meter(self, meter: Meter) -> Provider: ...

    def close(self) -> None:
        """Close the connections of this process; the provider can be used again."""
        ...


class Provider(ModelInfo, Protocol):
    """Embeds texts and completes prompts, from any thread."""

    def embed(self, texts: Sequence[str]) -> Embeddings:
        """Embed all texts, in order; if this raises, parts that arrived before are lost."""
        ...

    def embed_parts(self, texts: Sequence[str], enough: Callable[[], bool] = never_stop) -> Iterator[Embeddings]:
        """Embed all texts and yield each part as it arrives, in any order.

        All parts that arrived are yielded before a failure is raised. Closing the iterator early loses the requests in
        flight. To stop without losing them, let `enough` return True and read to the end.
        """
        ...

    def complete(self, prompt: Prompt) -> Completion:
        """Send the prompt to the language model; `Permanent("no_language_model")` if there is none."""
        ...

    def stream(self, prompt: Prompt) -> Generator[str | Completion, None, None]:
        """Send the prompt and yield the answer in pieces as it arrives; the completion comes last.

        A stream without a completion broke off. Closing the generator cancels the request.
        """
        ...


class DelegatedModelInfo:
    """The models of a wrapped provider."""

    def __init__(self, models: ModelInfo) -> None:
        self._models = models

    @property
    def embedding_model(self) -> str | None:
        return self._models.embedding_model

    @property
    def dimension(self) -> int | None:
        return self._models.dimension

    @property
    def chat_model(self) -> str | None:
        return self._models.chat_model

    @property
    def version(self) -> str:
        return self._models.version

    @property
    def paid(self) -> bool:
        return self._models.paid


def merge_embeddings(parts: Iterable[Embeddings]) -> Embeddings:
    """Join the parts of a call, in the order of its texts."""
    arrived = list(parts)  # before the import: the provider has the better error if an extra is not installed
    import numpy as np  # noqa: PLC0415 - slow to import, and an extra

    positions = [position for part in arrived for position in part.positions]
    order = sorted(range(len(positions)), key=positions.__getitem__)
    filled = [part.vectors for part in arrived if part.positions]
    return Embeddings(
        positions=tuple(positions[row] for row in order),
        vectors=np.concatenate(filled)[order] if filled else np.zeros((0, 0), dtype=np.float32),
        tokens=sum(part.tokens for part in arrived),
        refused={position: why for part in arrived for position, why in part.refused.items()},
    )


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, as broken files contain them, by `?`, so that the text can be encoded as UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")


def no_language_model() -> Permanent:
    return Permanent("no_language_model")


def no_embedding_model() -> Permanent:
    return Permanent("no_embedding_model")
