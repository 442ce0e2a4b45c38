"""What Holdfast asks of those who embed texts and speak, and the values that pass between.

A provider answers and remembers nothing: it neither waits nor tries again. What it cannot do now it raises as
`Transient` or `Outage`, what it can never do as `Permanent`, and the slot's state says what is next. Whoever pays
stores each part of an answer when it arrives, so the answer to many texts comes in parts, and one text that is never
taken sinks no other.
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
    Matrix: TypeAlias = NDArray[np.float32]  # one row a text


def never_stop() -> bool:
    """Want all of it."""
    return False


FENCED = re.compile(r"\A\s*```[a-z]*\s*\n(.*?)\n?```\s*\Z", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Embeddings:
    """Answers to texts of one call: row k of `vectors` belongs to the text at `places[k]` of that call.

    A text that the provider will never take is in `refused` instead. Vectors are float32 and of any length; one that
    is zero everywhere means that the provider understood nothing of the text.
    """

    positions: tuple[int, ...]
    vectors: Matrix
    tokens: int = 0  # as the provider reports them; 0 where it does not
    refused: Mapping[int, WorkError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What a language model is asked; with a schema the answer shall be JSON of that shape."""

    text: str
    system: str = ""
    schema: Mapping[str, Any] | None = None
    max_tokens: int = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What a language model answered, and what it is paid for."""

    text: str
    tokens_in: int = 0
    tokens_out: int = 0
    truncated: bool = (
        False  # the answer ends before the model had finished: at the limit of tokens, or the stream broke off
    )

    def json(self) -> Any:
        """Read the answer as JSON, also out of a fence; whether it follows the schema is not checked."""
        fenced = FENCED.match(self.text)
        try:
            return json.loads(fenced[1] if fenced else self.text)
        except ValueError as error:
            raise bad_answer("the answer is not JSON") from error


class MeteredRequest(Protocol):
    """What one request costs, as far as it is known; without any report the cost is estimated."""

    def report_tokens(self, tokens_in: int, tokens_out: int) -> None:
        """Note what the provider reports; the last report counts, and zero tokens are none."""
        ...

    def add_output(self, words: str) -> None:
        """Note a part of an answer, from which the cost is estimated if it is not reported or a stream breaks off."""
        ...

    def mark_unbilled(self) -> None:
        """Note that the provider did no work, so that the request costs nothing."""
        ...


class Meter(Protocol):
    """Accounts for each request to a paid provider: before it is sent, and when its cost is known."""

    def open_request(
        self, model: str, texts: Sequence[str], most_out: int = 0
    ) -> AbstractContextManager[MeteredRequest]:
        """Enclose one request: what it sends, and how many tokens the answer may have.

        Entering raises `Permanent("budget_spent")` if nothing may be sent. However it is left, the cost is recorded.
        """
        ...


class ModelInfo(Protocol):
    """What an answer of a provider depends on."""

    @property
    def embedding_model(self) -> str | None:
        """The model that embeds; None where there is none."""
        ...

    @property
    def dimension(self) -> int | None:
        """The length of each vector; None if only the first answer tells."""
        ...

    @property
    def chat_model(self) -> str | None:
        """The model that completes prompts; None where there is none."""
        ...

    @property
    def version(self) -> str:
        """What else an answer depends on; another version is another recipe."""
        ...

    @property
    def paid(self) -> bool:
        """Whether answers are worth keeping: free ones are made again as fast as they are read."""
        ...


class UnmeteredProvider(ModelInfo, Protocol):
    """A provider that nobody can call yet: every call needs a meter, so that no paid call is missing on the ledger."""

    def with_meter(self, meter: Meter) -> Provider:
        """Return what sends requests and accounts for each by this meter."""
        ...

    def close(self) -> None:
        """Close the connections of this process; the provider can be used again."""
        ...


class Provider(ModelInfo, Protocol):
    """Embeds texts and completes prompts, from any thread."""

    def embed(self, texts: Sequence[str]) -> Embeddings:
        """Embed all texts, in their order; if this raises, answers that arrived before are lost."""
        ...

    def embed_parts(self, texts: Sequence[str], enough: Callable[[], bool] = never_stop) -> Iterator[Embeddings]:
        """Embed all texts and give out each part as it arrives, in any order.

        What arrived is given out before a failure is raised. Whoever stops early loses what is under way; whoever wants
        no more but will not lose that lets `enough` say so and reads on to the end.
        """
        ...

    def complete(self, prompt: Prompt) -> Completion:
        """Ask the language model; `Permanent("no_language_model")` where there is none."""
        ...

    def stream(self, prompt: Prompt) -> Generator[str | Completion, None, None]:
        """Ask the language model and yield its words as they come; the completion comes last.

        A stream that ends without a completion broke off. Closing the generator ends the request.
        """
        ...


class DelegatedModelInfo:
    """The models of another provider, for a class that wraps one."""

    def __init__(self, models: ModelInfo) -> None:
        self._models = models

    @property
    def embedding_model(self) -> str | None:
        """The model that embeds; None where there is none."""
        return self._models.embedding_model

    @property
    def dimension(self) -> int | None:
        """The length of each vector; None if only the first answer tells."""
        return self._models.dimension

    @property
    def chat_model(self) -> str | None:
        """The model that completes prompts; None where there is none."""
        return self._models.chat_model

    @property
    def version(self) -> str:
        """What else an answer depends on."""
        return self._models.version

    @property
    def paid(self) -> bool:
        """Whether answers are worth keeping."""
        return self._models.paid


def merge_embeddings(parts: Iterable[Embeddings]) -> Embeddings:
    """Make one answer of the parts of a call, in the order of its texts."""
    known = list(parts)  # before the import: who made them tells best what is not installed
    import numpy as np  # noqa: PLC0415 - slow to import, and an extra

    places = [place for part in known for place in part.positions]
    order = sorted(range(len(places)), key=places.__getitem__)
    filled = [part.vectors for part in known if part.positions]
    return Embeddings(
        positions=tuple(places[row] for row in order),
        vectors=np.concatenate(filled)[order] if filled else np.zeros((0, 0), dtype=np.float32),
        tokens=sum(part.tokens for part in known),
        refused={place: why for part in known for place, why in part.refused.items()},
    )


def replace_surrogates(text: str) -> str:
    """Return a text that can be written as UTF-8: halves of characters, as broken files have them, become `?`."""
    return text.encode("utf-8", "replace").decode("utf-8")


def no_language_model() -> Permanent:
    """Say that nobody here can answer a prompt."""
    return Permanent(
        "no_language_model",
        "No language model is configured. Name an endpoint and its chat model in the settings; whatever needs none "
        "works without.",
    )


def no_embedding_model() -> Permanent:
    """Say that nobody here can embed a text."""
    return Permanent(
        "no_embedding_model",
        "This endpoint has no embedding model. Name one in the settings, or embed offline.",
    )
