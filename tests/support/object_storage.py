"""Buckets of the S3 server of the tests, and a proxy in front of it that fails on demand."""

from __future__ import annotations

import http.client
import threading
import uuid
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import urlsplit

import boto3
from botocore.config import Config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from tests.support.servers import SeaweedFS

BLOCK = 1 << 16
ERROR = """<?xml version="1.0"?><Error><Code>{code}</Code><Message>{message}</Message></Error>"""


class ObjectStorage:
    """Creates buckets and shows what they really contain."""

    def __init__(self, server: SeaweedFS) -> None:
        self.server = server
        self.endpoint = server.url
        self.admin: Any = boto3.session.Session().client(
            "s3",
            endpoint_url=server.url,
            aws_access_key_id=server.access_key,
            aws_secret_access_key=server.secret_key,
            region_name="us-east-1",
            config=Config(s3={"addressing_style": "path"}),
        )

    def environment(self, credentials: tuple[str, str] | None = None) -> dict[str, str]:
        """Return the environment of a process that uses the server, with `USER` or other credentials."""
        key, secret = credentials or self.server.USER
        return {
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/nonexistent",
            "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
        }

    def create_bucket(self, *, versioned: bool = False) -> str:
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        self.admin.create_bucket(Bucket=name)
        if versioned:
            self.admin.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
        return name

    def contents(self, bucket: str) -> list[str]:
        """Return the keys of all versions and delete markers in a bucket."""
        pages = list(self.admin.get_paginator("list_object_versions").paginate(Bucket=bucket))
        return sorted(one["Key"] for page in pages for one in page.get("Versions", []) + page.get("DeleteMarkers", []))


class Answer(NamedTuple):
    """An error response in the form of S3."""

    status: int
    code: str
    message: str = "The proxy says so."
    applied: bool = False  # the server has done what was requested; only its answer is lost


class FaultyProxy:
    """Passes requests to a server, except those for which `fault` returns an answer.

    `cut_after` ends every response after this many bytes. `delay` runs before each request.
    """

    def __init__(self, endpoint: str) -> None:
        self.fault: Callable[[str, str], Answer | None] = lambda _method, _path: None
        self.cut_after: int | None = None
        self.delay: Callable[[], object] = lambda: None
        self.requests: list[str] = []
        upstream = urlsplit(endpoint).netloc

        class Handler(_Handler):
            proxy, server_address = self, upstream

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def fail_all(self, status: int = 503, code: str = "ServiceUnavailable") -> None:
        self.fault = lambda _method, _path: Answer(status, code)

    def recover(self) -> None:
        self.fault = lambda _method, _path: None
        self.cut_after = None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: FaultyProxy
    server_address: str

    def _pass_on(self) -> None:
        self.proxy.requests.append(f"{self.command} {self.path}")
        self.proxy.delay()
        length = int(self.headers.get("Content-Length", 0))
        answer = self.proxy.fault(self.command, self.path)
        if answer is not None and not answer.applied:
            for _ in self._blocks(self.rfile, length):
                pass
            self._send(answer)
            return
        with closing(http.client.HTTPConnection(self.server_address, timeout=60)) as upstream:
            self._exchange(upstream, length, answer)

    def _exchange(self, upstream: http.client.HTTPConnection, length: int, answer: Answer | None) -> None:
        """Send the request to the server, and its response, or the answer of the test, to the client."""
        upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in {"expect", "connection"}:
                upstream.putheader(name, value)  # with the host that the client has signed
        upstream.endheaders()
        for block in self._blocks(self.rfile, length):
            upstream.send(block)
        response = upstream.getresponse()
        if answer is None:
            self._relay(response)
        else:
            response.read()
            self._send(answer)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on  # noqa: N815 - the names that the class looks for

    def _relay(self, response: http.client.HTTPResponse) -> None:
        self.send_response_only(response.status)
        length = response.headers.get("Content-Length")
        body = response.read() if length is None and self.command != "HEAD" else None
        for name, value in response.headers.items():
            if name.lower() not in {"connection", "transfer-encoding"}:
                self.send_header(name, value)
        if body is not None:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if body is not None:
            self.wfile.write(body)
        elif self.command != "HEAD":
            sent = 0
            for block in self._blocks(response, int(length or 0)):
                self.wfile.write(block[: self._room(sent)])
                sent += len(block)
                if self._room(sent) == 0:
                    self.close_connection = True
                    return

    def _room(self, sent: int) -> int | None:
        cut = self.proxy.cut_after
        return None if cut is None else max(cut - sent, 0)

    def _send(self, answer: Answer) -> None:
        body = ERROR.format(code=answer.code, message=answer.message).encode()
        self.send_response_only(answer.status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def handle_one_request(self) -> None:
        with suppress(ConnectionError):  # the client has gone
            super().handle_one_request()

    @staticmethod
    def _blocks(source: Any, length: int) -> Iterator[bytes]:
        while length and (block := source.read(min(BLOCK, length))):
            length -= len(block)
            yield block

    def log_message(self, *_: object) -> None:
        """Write nothing."""
