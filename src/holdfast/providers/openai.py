"""Any endpoint that speaks OpenAI's wire format: embeddings in checked batches, and chat.

The library's own retries are off and nobody sleeps here: whoever works for a slot raises, and the slot waits. An
answer is used only if it is whole: one finite vector of the right length for each text, in the order of `index`.

Celery forks its workers after the import, so the client with its connections belongs to a process id.
"""

from __future__ import annotations

import base64
import os
import threading
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from holdfast.errors import BadSettings, Permanent
from holdfast.extras import required
from holdfast.providers.base import Completion, gather, never, no_embedding_model, no_language_model, readable
from holdfast.providers.batches import Batching, embed_in_batches
from holdfast.providers.dialect import Dialect
from holdfast.providers.failures import bad_answer, content_refused, failure_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from openai import OpenAI

    from holdfast.providers.base import Embedded, Matrix, Prompt, Vector

CONNECT_SECONDS = 10.0
PATIENCE = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where the provider is, what it is asked for, and how much at once; all limits are those of one process."""

    base_url: str = "https://api.openai.com/v1"
    key: str = field(default="", repr=False)  # some endpoints of one's own need none
    embedding_model: str | None = None
    dimension: int | None = None  # what each vector must have; None takes what the model gives
    shorten: bool = False  # ask the model for that dimension, which only some models can
    encoding: Literal["base64", "float"] = "base64"  # fewer bytes; an endpoint that knows only floats may ignore it
    chat_model: str | None = None
    version: str = "1"  # raise it when the endpoint puts another model behind the same name
    paid: bool = True
    batching: Batching = field(default_factory=Batching)
    timeout: timedelta = PATIENCE  # without a byte of answer

    def __post_init__(self) -> None:
        """Refuse what could only fail later, when it looks like a fault of the network."""
        if not self.base_url.startswith(("http://", "https://")):
            raise BadSettings("The address of the provider must begin with http:// or https://.")
        if not (self.key.isascii() and self.key.isprintable()) or " " in self.key:
            raise BadSettings("The key of the provider has characters that no key has. Copy it again, without spaces.")
        if not (self.embedding_model or self.chat_model):
            raise BadSettings("The provider has neither an embedding model nor a chat model. Name at least one.")
        if self.timeout <= timedelta():
            raise BadSettings("The provider needs time to answer. Set its timeout above zero.")
        if self.dimension is not None and self.dimension < 1:
            raise BadSettings("A vector has at least one number. Set the dimension above zero, or leave it out.")
        if self.shorten and self.dimension is None:
            raise BadSettings("The model cannot shorten its vectors to an unknown dimension. Name the dimension.")


class OpenAIProvider:
    """The models behind one endpoint; in each process at most so many calls at once as its batching says."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.embedding_model = endpoint.embedding_model
        self.dimension = endpoint.dimension
        self.chat_model = endpoint.chat_model
        self.version = endpoint.version
        self.paid = endpoint.paid
        self._endpoint = endpoint
        self._lines: dict[int, _Line] = {}

    def embed(self, texts: Sequence[str]) -> Embedded:
        """Embed all texts, in their order; if this raises, answers that arrived before are lost."""
        return gather(self.embed_parts(texts))

    def embed_parts(self, texts: Sequence[str], enough: Callable[[], bool] = never) -> Iterator[Embedded]:
        """Embed all texts and give out each part as it arrives; what arrived comes before a failure is raised."""
        if self.embedding_model is None:
            raise no_embedding_model()
        dimension = self.dimension
        with closing(embed_in_batches(texts, self._line().embed, self._endpoint.batching, enough)) as parts:
            for part in parts:
                if part.places:
                    dimension = dimension or part.vectors.shape[1]
                    _check_dimension(part.vectors, dimension)
                yield part

    def complete(self, prompt: Prompt) -> Completion:
        """Ask the chat model; an answer that was cut says so, one that was refused is `Permanent`."""
        line = self._speaking()
        with line.room:
            return _completion(line.chat(prompt))

    def stream(self, prompt: Prompt) -> Iterator[str]:
        """Ask the chat model and give out its words as they come; until the end this is one of the calls at once."""
        line = self._speaking()
        with line.room, _understood():
            for chunk in line.chat(prompt, stream=True):
                yield from _words(chunk)

    def close(self) -> None:
        """Close the connections of this process; the next call opens new ones."""
        line = self._lines.pop(os.getpid(), None)
        if line is not None:
            line.close()

    def _speaking(self) -> _Line:
        if self.chat_model is None:
            raise no_language_model()
        return self._line()

    def _line(self) -> _Line:
        """Find or make what belongs to this process; a lock here might be copied locked by a fork."""
        pid = os.getpid()
        return self._lines.get(pid) or self._lines.setdefault(pid, _Line(self._endpoint))


class _Line:
    """The client of one process, and how many may use it at once."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.room = threading.BoundedSemaphore(endpoint.batching.at_once)
        self._endpoint = endpoint
        self._client = _client(endpoint)
        self._dialect = Dialect()  # as far as the endpoint is known

    def embed(self, texts: Sequence[str]) -> tuple[Matrix, int]:
        """Ask for one batch; the answer is whole or raises."""
        asked: dict[str, Any] = {"dimensions": self._endpoint.dimension} if self._endpoint.shorten else {}
        with self.room, _understood():
            answer = self._client.embeddings.create(
                input=[readable(text) for text in texts],
                model=str(self._endpoint.embedding_model),
                encoding_format=self._endpoint.encoding,
                **asked,
            )
        return _matrix(answer, len(texts)), _tokens(answer, "prompt_tokens")

    def chat(self, prompt: Prompt, *, stream: bool = False) -> Any:
        """Ask in the fullest way that the endpoint understands, and remember which one that was."""
        create: Any = self._client.chat.completions.create
        dialect = self._dialect
        while True:
            try:
                with _understood():
                    answer = create(model=self._endpoint.chat_model, stream=stream, **dialect.request(prompt))
            except Permanent as refusal:
                simpler = _simpler(dialect, refusal, prompt)
                if simpler is None:
                    raise
                dialect = simpler
            else:
                self._dialect = dialect
                return answer

    def close(self) -> None:
        self._client.close()


def _simpler(dialect: Dialect, refusal: Permanent, prompt: Prompt) -> Dialect | None:
    if refusal.code != "bad_provider_request":
        return None
    return dialect.without(refusal.params.get("provider_param"), prompt)


def _client(endpoint: Endpoint) -> OpenAI:
    with required("documents"):
        from openai import OpenAI, Timeout  # noqa: PLC0415 - slow to import
    seconds = endpoint.timeout.total_seconds()
    return OpenAI(
        base_url=endpoint.base_url,
        api_key=endpoint.key or "none",  # the library takes a key from the environment if it is given none
        max_retries=0,
        timeout=Timeout(seconds, connect=min(seconds, CONNECT_SECONDS)),
    )


@contextmanager
def _understood() -> Iterator[None]:
    """Raise what an error of the library means for the work; errors of our own stay what they are."""
    from openai import OpenAIError  # noqa: PLC0415

    try:
        yield
    except OpenAIError as error:
        raise failure_of(error) from error
    except ValueError as error:  # what the library raises when it cannot read JSON
        raise bad_answer("the answer is not JSON") from error


def _matrix(answer: Any, count: int) -> Matrix:
    """Return one row for each text, in the order of `index`, or raise `bad_answer`."""
    import numpy as np  # noqa: PLC0415 - slow to import, and an extra

    try:
        rows = {item.index: item.embedding for item in answer.data}
        if len(answer.data) != count or rows.keys() != set(range(count)):
            raise bad_answer("not one vector for each text")
        vectors = np.stack([_vector(rows[place]) for place in range(count)])
    except (AttributeError, TypeError, ValueError) as error:
        raise bad_answer("no vectors of one length") from error
    if vectors.ndim != 2 or not vectors.size or not np.isfinite(vectors).all():  # noqa: PLR2004 - rows and columns
        raise bad_answer("no finite vectors")
    return vectors


def _vector(written: Any) -> Vector:
    import numpy as np  # noqa: PLC0415

    if isinstance(written, str):
        return np.frombuffer(base64.b64decode(written, validate=True), dtype="<f4").astype(np.float32)
    with np.errstate(over="ignore"):  # what is too large becomes infinite, which is checked
        return np.array(written, dtype=np.float64).astype(np.float32)


def _check_dimension(vectors: Matrix, dimension: int) -> None:
    if vectors.shape[1] != dimension:
        raise bad_answer(f"vectors of {vectors.shape[1]} numbers instead of {dimension}")


def _completion(answer: Any) -> Completion:
    try:
        choice = answer.choices[0]
        text, cut = choice.message.content or "", choice.finish_reason == "length"
    except (AttributeError, IndexError, TypeError) as error:
        raise bad_answer("no choice") from error
    if choice.finish_reason == "content_filter" or getattr(choice.message, "refusal", None):
        raise content_refused()
    if not isinstance(text, str) or not (text or cut):
        raise bad_answer("no words")
    tokens_in, tokens_out = _tokens(answer, "prompt_tokens"), _tokens(answer, "completion_tokens")
    return Completion(text=text, tokens_in=tokens_in, tokens_out=tokens_out, cut=cut)


def _words(chunk: Any) -> Iterator[str]:
    """Return the words of one event of a stream; some events carry none."""
    for choice in getattr(chunk, "choices", None) or ():
        delta = getattr(choice, "delta", None)
        if getattr(choice, "finish_reason", None) == "content_filter" or getattr(delta, "refusal", None):
            raise content_refused()
        if words := getattr(delta, "content", None):
            yield str(words)


def _tokens(answer: Any, kind: str) -> int:
    """Return the tokens to pay for; not every endpoint counts them."""
    count = getattr(getattr(answer, "usage", None), kind, None)
    return count if isinstance(count, int) else 0
