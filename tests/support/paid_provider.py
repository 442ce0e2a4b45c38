"""A fake paid provider: a real HTTP server on loopback that uses OpenAI's wire format and keeps a bill.

    with PaidProvider() as paid:
        endpoint = Endpoint(base_url=paid.url, key=paid.key, embedding_model=paid.embedding_model)
        paid.next(RATE_LIMITED, SHORT)        # the next two calls fail with these faults, in order of arrival
        paid.always(DOWN)                     # every call fails with this fault, until `always(None)`
        paid.refuses["poison"] = REFUSED      # every call with this word in a text fails with this fault
        paid.stall(); paid.await_calls(3); paid.release()   # calls wait at a gate, and the test waits for calls
        paid.bill.texts["some text"]          # how often this text was paid for

Any process can call it by its address. The test that started it controls it and reads the bill. Vectors are made from
a hash of the text (`vector_of`), chat answers by `paid.reply`.

A call is paid once the provider has done the work, even if the answer then arrives broken, late or not at all. A call
that is rejected with an error is not on the bill.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import sys
import threading
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self, cast
from uuid import uuid4

from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One way to fail: an error status, or a defect (`twist`) in a successful answer."""

    status: int = 200
    code: str | None = None
    type: str | None = None
    param: str | None = None
    retry_after: str | None = None
    twist: str = ""


FINE = Fault()  # no fault, whatever other faults are set

# Rejected and not paid.
RATE_LIMITED = Fault(status=429, code="rate_limit_exceeded", type="requests", retry_after="7")
OUT_OF_QUOTA = Fault(status=429, code="insufficient_quota", type="insufficient_quota")
BAD_KEY = Fault(status=401, code="invalid_api_key", type="invalid_request_error")
NOT_ALLOWED = Fault(status=403, type="permission_denied")
NO_MODEL = Fault(status=404, code="model_not_found", type="invalid_request_error")
TOO_LONG = Fault(status=400, code="context_length_exceeded", type="invalid_request_error", param="input")
TOO_MANY = Fault(status=413)
REFUSED = Fault(status=400, code="content_filter")
AGAINST_POLICY = Fault(status=400, code="content_policy_violation", type="invalid_request_error")
UNCLEAR = Fault(status=400, type="invalid_request_error")
BROKEN = Fault(status=500, type="server_error")
DOWN = Fault(status=503, type="server_error")
TEAPOT = Fault(status=418)  # a status without a defined meaning

# Paid, but damaged in transit.
DROPPED = Fault(twist="dropped")  # the connection closes before the answer, or in the middle of a stream
MALFORMED = Fault(twist="malformed")  # truncated JSON
NOT_JSON = Fault(twist="not_json")  # an HTML page, as from a proxy
# Embeddings.
SHORT = Fault(twist="short")  # the last vector is missing
REORDERED = Fault(twist="reordered")  # in reverse order with correct `index` values, which is valid
WRONG_INDEXES = Fault(twist="wrong_indexes")  # an index that is repeated or out of range
NOT_A_NUMBER = Fault(twist="nan")
INFINITE = Fault(twist="infinite")
TOO_LARGE = Fault(twist="too_large")  # a number beyond float32
WRONG_DIMENSION = Fault(twist="wrong_dimension")  # every vector is too short
RAGGED = Fault(twist="ragged")  # one vector is too short
# Chat.
FILTERED = Fault(twist="filtered")  # the content filter stopped the model
DECLINED = Fault(twist="declined")  # the model refuses with a message
CUT = Fault(twist="cut")  # the token limit was reached
UNFINISHED = Fault(twist="unfinished")  # a stream that ends normally but without a finish reason
SILENT = Fault(twist="silent")  # an answer without text
FAILED_IN_STREAM = Fault(twist="failed_in_stream", code="insufficient_quota", type="insufficient_quota")


@dataclass(slots=True)
class Bill:
    """The calls that the provider received, and the work that it charges for."""

    calls: int = 0  # all calls, including rejected ones
    paid: int = 0  # calls that were answered and are charged
    texts: Counter[str] = field(default_factory=Counter)  # embedded texts, and how often each is charged
    prompts: Counter[str] = field(default_factory=Counter)  # last message of each chat call
    tokens: int = 0
    most_at_once: int = 0


def vector_of(text: str, dimension: int = 8) -> list[float]:
    """Return the vector of a text: numbers in [-1, 1) that float32 represents exactly."""
    return [byte / 128 - 1 for byte in hashlib.shake_256(text.encode()).digest(dimension)]


def unpaid() -> str:
    """Return a text that no test has embedded yet, because a cached vector would hide a fault of the provider."""
    return f"# Number\n\nText number {uuid4().hex}."


def tokens_of(text: str) -> int:
    """Return the number of tokens that the bill counts for a text."""
    return len(text) // 4 + 1


def echo(request: Json) -> str:
    """Return the default answer to a chat request. It is always the same for the same messages."""
    said = hashlib.sha256(json.dumps(request["messages"]).encode()).hexdigest()[:12]
    return json.dumps({"answer": said}) if "response_format" in request else f"The answer is {said}."


class PaidProvider:
    """The server. It runs inside `with`."""

    key = "sk-paid"
    embedding_model = "embedder"
    chat_model = "speaker"

    def __init__(self, *, dimension: int = 8) -> None:
        self.dimension = dimension
        self.bill = Bill()
        self.requests: deque[Json] = deque(maxlen=1000)  # the last request bodies, unchanged
        self.refuses: dict[str, Fault] = {}  # word in a text or prompt -> the fault that rejects the whole call
        self.rejects: set[str] = set()  # parameters and kinds of response_format that this endpoint does not support
        self.longest: int | None = None  # most characters of a text
        self.most_texts: int | None = None  # most texts of a call
        self.authorization = f"Bearer {self.key}"  # header that every call must have
        self.only_floats = False  # ignore encoding_format=base64, as some endpoints do
        self.reply: Callable[[Json], str] = echo
        self._next: deque[Fault] = deque()
        self._always: Fault | None = None
        self._changed = threading.Condition()
        self._inside = 0
        self._gate = threading.Event()
        self._gate.set()
        self._stall_seconds: float | None = None
        self.crashes: list[BaseException] = []  # errors in this server, raised when it ends
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        if error is None and self.crashes:
            raise self.crashes[0]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def next(self, *faults: Fault) -> None:
        """Make the next calls fail with these faults, one each."""
        with self._changed:
            self._next.extend(faults)

    def always(self, fault: Fault | None) -> None:
        """Make every call fail with this fault, after the faults of `next`. None ends this."""
        self._always = fault

    def stall(self, seconds: float | None = None) -> None:
        """Delay all answers until `release`, or each by at most this many seconds."""
        self._stall_seconds = seconds
        self._gate.clear()

    def release(self) -> None:
        """Answer all waiting calls, and delay no more calls."""
        self._gate.set()

    def await_calls(self, count: int) -> None:
        """Wait until this many calls are in progress at the same time."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._inside >= count, PATIENCE_SECONDS):
                raise TimeoutError(f"{self._inside} calls instead of {count}")

    def arrive(self, request: Json) -> Fault | None:
        """Count a call, wait if calls are delayed, and return the fault that the test set for this call."""
        with self._changed:
            self.bill.calls += 1
            self._inside += 1
            self.bill.most_at_once = max(self.bill.most_at_once, self._inside)
            self.requests.append(request)
            fault = self._next.popleft() if self._next else self._always
            self._changed.notify_all()
        self._gate.wait(self._stall_seconds)
        return fault

    def leave(self) -> None:
        with self._changed:
            self._inside -= 1

    def rejection(self, path: str, request: Json, key: str) -> Fault | None:
        """Return the fault of an invalid call, or None if the call is valid."""
        embedding = path == "/v1/embeddings"
        if key != self.authorization:
            return BAD_KEY
        if request.get("model") != (self.embedding_model if embedding else self.chat_model):
            return NO_MODEL
        unknown = self.rejects & {*request, request.get("response_format", {}).get("type")}
        if unknown:
            name = unknown.pop()
            param = name if name in request else "response_format"
            return Fault(status=400, code="unsupported_parameter", type="invalid_request_error", param=param)
        return self._refusal(texts_of(path, request))

    def _refusal(self, texts: list[str]) -> Fault | None:
        if self.most_texts is not None and len(texts) > self.most_texts:
            return TOO_MANY
        if self.longest is not None and any(len(text) > self.longest for text in texts):
            return TOO_LONG
        if "" in texts:
            return UNCLEAR
        return next((fault for word, fault in self.refuses.items() if any(word in text for text in texts)), None)

    def embeddings(self, request: Json) -> Json:
        """Carry out one embedding call and put it on the bill."""
        texts = texts_of("/v1/embeddings", request)
        tokens = sum(tokens_of(text) for text in texts)
        with self._changed:
            self.bill.paid += 1
            self.bill.texts.update(texts)
            self.bill.tokens += tokens
        dimension = request.get("dimensions", self.dimension)
        data = [
            {"object": "embedding", "index": index, "embedding": vector_of(text, dimension)}
            for index, text in enumerate(texts)
        ]
        return {"object": "list", "data": data, "model": request["model"], "usage": _usage(tokens, 0)}

    def completion(self, request: Json) -> Json:
        """Carry out one chat call and put it on the bill."""
        text = self.reply(request)
        prompt = texts_of("/v1/chat/completions", request)
        paid = sum(tokens_of(one) for one in prompt), tokens_of(text)
        with self._changed:
            self.bill.paid += 1
            self.bill.prompts.update(prompt[-1:])
            self.bill.tokens += sum(paid)
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1_800_000_000, "model": request["model"]}
        return {**head, "choices": [choice], "usage": _usage(*paid)}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, provider: PaidProvider) -> None:
        self.provider = provider
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - signature of the library
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):  # a closed connection is not an error of this server
            self.provider.crashes.append(error)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise each answer on a reused connection is delayed by 40 ms

    def do_POST(self) -> None:
        provider = cast("_Server", self.server).provider
        length = int(self.headers["Content-Length"])
        body = self.rfile.read(length)
        if len(body) < length:
            raise ConnectionAbortedError  # the caller closed the connection before the body was complete
        request = json.loads(body)
        fault = provider.arrive(request)
        try:
            fault = fault or provider.rejection(self.path, request, self.headers.get("Authorization", ""))
            if fault is not None and fault.status != 200:
                self._reject(fault)
            elif self.path == "/v1/embeddings":
                self._embed(provider, request, fault)
            else:
                self._speak(provider, request, fault)
        finally:
            provider.leave()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - name in the library
        """Log nothing, because tests read the bill."""

    def _reject(self, fault: Fault) -> None:
        error = {"message": "No, for a reason.", "code": fault.code, "type": fault.type, "param": fault.param}
        headers = {"Retry-After": fault.retry_after} if fault.retry_after else {}
        self._send(fault.status, json.dumps({"error": error}).encode(), headers)

    def _embed(self, provider: PaidProvider, request: Json, fault: Fault | None) -> None:
        answer = provider.embeddings(request)
        twist = fault.twist if fault else ""
        _twist_vectors(answer["data"], twist)
        if request.get("encoding_format") == "base64" and not provider.only_floats:
            for item in answer["data"]:
                item["embedding"] = _packed(item["embedding"])
        self._finish(answer, twist)

    def _speak(self, provider: PaidProvider, request: Json, fault: Fault | None) -> None:
        answer = provider.completion(request)
        _twist_choice(answer["choices"][0], fault.twist if fault else "")
        if request.get("stream"):
            self._stream(request, answer, fault)
        else:
            self._finish(answer, fault.twist if fault else "")

    def _finish(self, answer: Json, twist: str) -> None:
        written = json.dumps(answer).encode()
        if twist == "dropped":
            self._hang_up()
        elif twist == "not_json":
            self._send(200, b"<html>Please log in.</html>", {"Content-Type": "text/html"})
        else:
            self._send(200, written[:-20] if twist == "malformed" else written)

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        about = {"Content-Type": "application/json", "Content-Length": str(len(body)), "x-request-id": "req_1"}
        self.send_response(status)
        for name, value in (about | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, request: Json, answer: Json, fault: Fault | None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        wants_usage = (request.get("stream_options") or {}).get("include_usage", False)
        for event in _events(answer, fault, usage=wants_usage):
            data = f"data: {event}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        if fault is not None and fault.twist == "dropped":
            self._hang_up()
        else:
            self.wfile.write(b"0\r\n\r\n")

    def _hang_up(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(2)


def texts_of(path: str, request: Json) -> list[str]:
    """Return the texts of a call: the inputs to embed, or the messages of a chat in order."""
    if path == "/v1/embeddings":
        given = request["input"]
        return [given] if isinstance(given, str) else list(given)
    return [message["content"] for message in request["messages"]]


def _usage(tokens_in: int, tokens_out: int) -> Json:
    counted = {"prompt_tokens": tokens_in, "total_tokens": tokens_in + tokens_out}
    return counted | ({"completion_tokens": tokens_out} if tokens_out else {})


def _packed(vector: list[float]) -> str:
    numbers = [number if abs(number) < 1e39 else float("inf") for number in vector]
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def _twist_vectors(data: list[Json], twist: str) -> None:
    last: list[float] = data[-1]["embedding"]
    if twist == "short":
        del data[-1]
    elif twist == "reordered":
        data.reverse()
    elif twist == "wrong_indexes":
        data[-1]["index"] = 0 if len(data) > 1 else 1
    elif twist == "wrong_dimension":
        for item in data:
            del item["embedding"][-1]
    elif twist == "ragged":
        del last[-1]
    elif twist in NUMBERS:
        last[0] = NUMBERS[twist]


NUMBERS = {"nan": float("nan"), "infinite": float("inf"), "too_large": 1e300}


def _twist_choice(choice: Json, twist: str) -> None:
    message = choice["message"]
    if twist == "filtered":
        choice["finish_reason"] = "content_filter"
    elif twist == "declined":
        message.update(content=None, refusal="I would rather not.")
    elif twist == "cut":
        choice["finish_reason"] = "length"
        message["content"] = message["content"][:-3]
    elif twist == "silent":
        message["content"] = None


def _events(answer: Json, fault: Fault | None, *, usage: bool) -> Iterator[str]:
    """Yield the events of a streamed answer: one per word, the finish reason, and the usage if requested."""
    choice = answer["choices"][0]
    words = (choice["message"]["content"] or "").split(" ")
    twist = fault.twist if fault else ""
    spoilt = twist in ("dropped", "failed_in_stream", "malformed")
    for number, word in enumerate(words[:2] if spoilt else words):
        yield _event(answer, {"content": word if number == 0 else f" {word}"}, None)
    if fault is not None and twist == "failed_in_stream":
        yield json.dumps({"error": {"message": "No more.", "code": fault.code, "type": fault.type}})
    elif twist == "malformed":
        yield '{"id": '
    elif not spoilt:
        refusal = choice["message"]["refusal"]
        if twist != "unfinished":
            yield _event(answer, {"refusal": refusal} if refusal else {}, choice["finish_reason"])
        if usage:
            head = {name: answer[name] for name in ("id", "created", "model", "usage")}
            yield json.dumps({**head, "object": "chat.completion.chunk", "choices": []})
        yield "[DONE]"


def _event(answer: Json, delta: Json, finish: str | None) -> str:
    head = {name: answer[name] for name in ("id", "created", "model")}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return json.dumps({**head, "object": "chat.completion.chunk", "choices": [choice]})
