"""Embeddings and chat of endpoints that are compatible with OpenAI.

The retries of the library are off, and nothing here sleeps: errors are raised, and the slot waits. An answer is used
only if it is complete: one finite vector of the right length for each text, in the order of `index`.

Every request goes through a meter that records its cost, also repeated requests and broken ones that the provider may
have worked on. A request that is answered with an error status costs nothing.

Celery forks its workers after the import, so each process has its own client with its own connections.
"""

from __future__ import annotations

import base64
import os
import threading
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.errors import BadSettings, Permanent
from holdfast.extras import importing_extra
from holdfast.llm.base import (
    Completion,
    DelegatedModelInfo,
    merge_embeddings,
    never_stop,
    no_embedding_model,
    no_language_model,
    replace_surrogates,
)
from holdfast.llm.batches import BatchLimits, embed_in_batches
from holdfast.llm.chat_params import ChatParams
from holdfast.llm.failures import bad_answer, to_work_error
from holdfast.logs import mask_http_client_log

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from openai import OpenAI, OpenAIError

    from holdfast.llm.base import Embeddings, Matrix, Meter, MeteredRequest, ModelInfo, Prompt, Provider, Vector

CONNECT_SECONDS = 10.0
NOT_SENT_ERRORS = frozenset(
    {"ConnectError", "ConnectTimeout", "PoolTimeout"}
)  # causes of errors before anything was sent
TRUNCATED_REASONS = frozenset({"length", "max_tokens", "model_length"})  # finish reasons of an incomplete answer
DEFAULT_TIMEOUT = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Address, models and limits of a provider; the limits apply to each process."""

    base_url: str = field(default="https://api.openai.com/v1", repr=False)  # may contain a secret
    key: str = field(default="", repr=False)  # local endpoints may need none
    embedding_model: str | None = None
    chat_model: str | None = None
    version: str = "1"  # increase it when the endpoint serves another model under the same name
    batching: BatchLimits = field(default_factory=BatchLimits)
    timeout: timedelta = DEFAULT_TIMEOUT  # without a byte of the answer

    def __post_init__(self) -> None:
        """Refuse values that would fail later and look like network errors."""
        if not self.base_url.startswith(("http://", "https://")):
            raise BadSettings("provider_url_scheme")
        if not (self.key.isascii() and self.key.isprintable()) or " " in self.key:
            raise BadSettings("provider_key_characters")
        if not (self.embedding_model or self.chat_model):
            raise BadSettings("provider_without_model")
        if self.timeout <= timedelta():
            raise BadSettings("provider_timeout_too_short", seconds=f"{self.timeout.total_seconds():g}")


class OpenAIProvider:
    """The models of one endpoint."""

    dimension = None
    paid = True

    def __init__(self, endpoint: Endpoint) -> None:
        self.embedding_model = endpoint.embedding_model
        self.chat_model = endpoint.chat_model
        self.version = endpoint.version
        self._endpoint = endpoint
        self._clients: dict[int, _ProcessClient] = {}

    def with_meter(self, meter: Meter) -> Provider:
        return _MeteredOpenAI(self, self._endpoint, self._process_client, meter)

    def close(self) -> None:
        """Close the connections of this process; the next call opens new ones."""
        client = self._clients.pop(os.getpid(), None)
        if client is not None:
            client.close()

    def _process_client(self) -> _ProcessClient:
        """Return the client of this process. There is no lock here, because a fork could copy it while it is held."""
        pid = os.getpid()
        return self._clients.get(pid) or self._clients.setdefault(pid, _ProcessClient(self._endpoint))


class _MeteredOpenAI(DelegatedModelInfo):
    """Sends requests to one endpoint, each through the meter."""

    def __init__(
        self, models: ModelInfo, endpoint: Endpoint, client: Callable[[], _ProcessClient], meter: Meter
    ) -> None:
        super().__init__(models)
        self._endpoint = endpoint
        self._process_client = client
        self._meter = meter

    def embed(self, texts: Sequence[str]) -> Embeddings:
        return merge_embeddings(self.embed_parts(texts))

    def embed_parts(self, texts: Sequence[str], enough: Callable[[], bool] = never_stop) -> Iterator[Embeddings]:
        if self.embedding_model is None:
            raise no_embedding_model()
        dimension: int | None = None
        ask = partial(self._process_client().embed, meter=self._meter)
        with closing(embed_in_batches(texts, ask, self._endpoint.batching, enough)) as parts:
            for part in parts:
                if part.positions:
                    dimension = dimension or part.vectors.shape[1]
                    _check_dimension(part.vectors, dimension)
                yield part

    def complete(self, prompt: Prompt) -> Completion:
        """Send the prompt; a truncated answer is marked, a refusal raises `Permanent`."""
        client = self._require_chat_client()
        with client.concurrency:
            return client.complete(prompt, self._meter)

    def stream(self, prompt: Prompt) -> Generator[str | Completion, None, None]:
        """Send the prompt and yield the answer in pieces; counts against the concurrency limit until the end."""
        client = self._require_chat_client()
        with client.concurrency:
            yield from client.stream(prompt, self._meter)

    def _require_chat_client(self) -> _ProcessClient:
        if self.chat_model is None:
            raise no_language_model()
        return self._process_client()


class _ProcessClient:
    """The HTTP client of one process, with its concurrency limit."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.concurrency = threading.BoundedSemaphore(endpoint.batching.concurrency)
        self._endpoint = endpoint
        self._client = _client(endpoint)
        self._chat_params = ChatParams()  # that the endpoint is known to accept

    def embed(self, texts: Sequence[str], meter: Meter) -> tuple[Matrix, int]:
        """Embed one batch; raise if the answer is incomplete."""
        model, sent = str(self._endpoint.embedding_model), [replace_surrogates(text) for text in texts]
        with self.concurrency, meter(model, sent) as bill, _translate_errors(bill):
            # Base64 has fewer bytes; an endpoint that supports only floats may ignore it.
            answer = self._client.embeddings.create(input=sent, model=model, encoding_format="base64")
            tokens = _tokens(answer, "prompt_tokens")
            bill.report_tokens(tokens, 0)
        return _matrix(answer, len(texts)), tokens

    def complete(self, prompt: Prompt, meter: Meter) -> Completion:
        """Send the prompt with as many parameters as the endpoint accepts, and remember which ones."""
        params = self._chat_params
        while True:
            try:
                with self._request(prompt, params, meter) as bill:
                    answer = self._create(**params.build_request(prompt))
                    tokens = _tokens(answer, "prompt_tokens"), _tokens(answer, "completion_tokens")
                    bill.report_tokens(*tokens)
                    bill.add_output(_answer_text(answer))
            except Permanent as refusal:
                params = _simplify_or_raise(params, refusal, prompt)
            else:
                self._chat_params = params
                return _completion(answer, *tokens)

    def stream(self, prompt: Prompt, meter: Meter) -> Iterator[str | Completion]:
        """Stream an answer with as many parameters as the endpoint accepts."""
        params, begun = self._chat_params, False
        while True:
            try:
                with closing(self._stream(prompt, params, meter)) as parts:
                    for part in parts:
                        begun = True
                        yield part
            except Permanent as refusal:
                if begun:
                    raise
                params = _simplify_or_raise(params, refusal, prompt, stream=True)
            else:
                return

    def _stream(self, prompt: Prompt, params: ChatParams, meter: Meter) -> Generator[str | Completion, None, None]:
        """Yield the answer in pieces, and the completion after the meter has recorded the cost."""
        pieces, reason, tokens = [], None, (0, 0)
        request = params.build_request(prompt, stream=True)
        with self._request(prompt, params, meter) as bill, self._create(**request) as events:
            self._chat_params = params
            for event in events:
                if getattr(event, "usage", None) is not None:
                    tokens = _tokens(event, "prompt_tokens"), _tokens(event, "completion_tokens")
                    bill.report_tokens(*tokens)
                reason = _reason(event) or reason
                for words in _stream_texts(event):
                    bill.add_output(words)
                    pieces.append(words)
                    yield words
        cut = reason is None or reason in TRUNCATED_REASONS
        yield Completion(text="".join(pieces), tokens_in=tokens[0], tokens_out=tokens[1], truncated=cut)

    @contextmanager
    def _request(self, prompt: Prompt, params: ChatParams, meter: Meter) -> Iterator[MeteredRequest]:
        """Meter one chat request and translate its errors."""
        sent = "\n".join(message["content"] for message in params.messages(prompt))
        with meter(str(self._endpoint.chat_model), [sent], prompt.max_tokens) as bill, _translate_errors(bill):
            yield bill

    def _create(self, **request: Any) -> Any:
        create: Any = self._client.chat.completions.create
        return create(model=self._endpoint.chat_model, **request)

    def close(self) -> None:
        self._client.close()


def _simplify_or_raise(params: ChatParams, refusal: Permanent, prompt: Prompt, *, stream: bool = False) -> ChatParams:
    """Return simpler parameters after a rejection, or raise the rejection if none are left."""
    known = refusal.code == "bad_provider_request"
    simpler = (
        params.simplify_after_rejection(refusal.params.get("provider_param"), prompt, stream=stream) if known else None
    )
    if simpler is None:
        raise refusal
    return simpler


def _client(endpoint: Endpoint) -> OpenAI:
    with importing_extra("documents"):
        from openai import OpenAI, Timeout  # noqa: PLC0415 - slow to import
    mask_http_client_log()
    seconds = endpoint.timeout.total_seconds()
    return OpenAI(
        base_url=endpoint.base_url,
        api_key=endpoint.key or "none",  # without a key the library takes one from the environment
        max_retries=0,
        timeout=Timeout(seconds, connect=min(seconds, CONNECT_SECONDS)),
    )


@contextmanager
def _translate_errors(bill: MeteredRequest) -> Iterator[None]:
    """Raise errors of the library as `WorkError`; our own errors pass unchanged."""
    from openai import OpenAIError  # noqa: PLC0415

    try:
        yield
    except OpenAIError as error:
        if _unbilled(error):
            bill.mark_unbilled()
        raise to_work_error(error) from error
    except ValueError as error:  # the library raises it for invalid JSON
        raise bad_answer("answer_not_json") from error


def _unbilled(error: OpenAIError) -> bool:
    """Return whether the provider did no work: it answered with an error status, or was never reached."""
    from openai import APIStatusError  # noqa: PLC0415

    return isinstance(error, APIStatusError) or type(error.__cause__).__name__ in NOT_SENT_ERRORS


def _matrix(answer: Any, count: int) -> Matrix:
    """Return one row for each text, in the order of `index`, or raise `bad_answer`."""
    import numpy as np  # noqa: PLC0415 - slow to import, and an extra

    try:
        rows = {item.index: item.embedding for item in answer.data}
        if len(answer.data) != count or rows.keys() != set(range(count)):
            raise bad_answer("vector_count")
        vectors = np.stack([_vector(rows[place]) for place in range(count)])
    except (AttributeError, TypeError, ValueError) as error:
        raise bad_answer("vector_format") from error
    if vectors.ndim != 2 or not vectors.size or not np.isfinite(vectors).all():  # noqa: PLR2004 - rows and columns
        raise bad_answer("vector_numbers")
    return vectors


def _vector(written: Any) -> Vector:
    import numpy as np  # noqa: PLC0415

    if isinstance(written, str):
        return np.frombuffer(base64.b64decode(written, validate=True), dtype="<f4").astype(np.float32)
    with np.errstate(over="ignore"):  # too large numbers become infinite, which `_matrix` refuses
        return np.array(written, dtype=np.float64).astype(np.float32)


def _check_dimension(vectors: Matrix, dimension: int) -> None:
    if vectors.shape[1] != dimension:
        raise bad_answer("vector_format", detail=f"vectors of {vectors.shape[1]} numbers instead of {dimension}")


def _completion(answer: Any, tokens_in: int, tokens_out: int) -> Completion:
    try:
        choice = answer.choices[0]
        text, cut = choice.message.content or "", choice.finish_reason in TRUNCATED_REASONS
    except (AttributeError, IndexError, TypeError) as error:
        raise bad_answer("answer_empty") from error
    if choice.finish_reason == "content_filter" or getattr(choice.message, "refusal", None):
        raise Permanent("content_refused")
    if not isinstance(text, str) or not (text or cut):
        raise bad_answer("answer_empty")
    return Completion(text=text, tokens_in=tokens_in, tokens_out=tokens_out, truncated=cut)


def _answer_text(answer: Any) -> str:
    """Return the text of an answer, to estimate its cost if the endpoint does not report it."""
    choices = getattr(answer, "choices", None) or ()
    return "".join(str(getattr(getattr(choice, "message", None), "content", None) or "") for choice in choices)


def _reason(event: Any) -> str | None:
    """Return the finish reason, if this event of a stream has one."""
    for choice in getattr(event, "choices", None) or ():
        if reason := getattr(choice, "finish_reason", None):
            return str(reason)
    return None


def _stream_texts(chunk: Any) -> Iterator[str]:
    """Yield the text of one event of a stream; some events have none."""
    for choice in getattr(chunk, "choices", None) or ():
        delta = getattr(choice, "delta", None)
        if getattr(choice, "finish_reason", None) == "content_filter" or getattr(delta, "refusal", None):
            raise Permanent("content_refused")
        if words := getattr(delta, "content", None):
            yield str(words)


def _tokens(answer: Any, kind: str) -> int:
    """Return the reported tokens; not every endpoint reports them."""
    count = getattr(getattr(answer, "usage", None), kind, None)
    return count if isinstance(count, int) else 0
