"""Streams the original file of a document, or a part of it, from the store that holds it."""

from __future__ import annotations

import re
from contextlib import ExitStack
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import quote

from anyio import CancelScope, to_thread
from starlette.responses import StreamingResponse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from starlette.types import Receive, Scope, Send

    from holdfast.blobs import ByteReader
    from holdfast.documents import OriginalFile

BLOCK_BYTES = 1 << 18
RANGE_PATTERN = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


class OriginalFileResponse(StreamingResponse):
    """A download, whole or in part. It opens the file at once, so that a missing file is still an error response.

    A request for several ranges gets the whole file, as HTTP allows.
    """

    media_type = "application/octet-stream"

    def __init__(self, file: OriginalFile, request_headers: Mapping[str, str]) -> None:
        etag = f'"{file.digest}"'
        part, status, more = range(file.size), HTTPStatus.OK, {}
        same = request_headers.get("if-range", etag) == etag
        wanted = parse_range(request_headers.get("range", ""), file.size) if same else None
        if wanted is not None:
            part, shown = wanted, f"{wanted.start}-{wanted.stop - 1}" if wanted else "*"
            status = HTTPStatus.PARTIAL_CONTENT if wanted else HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
            more = {"Content-Range": f"bytes {shown}/{file.size}"}
        self._held = ExitStack()
        reader = self._held.enter_context(file.open(part.start if part else 0))
        super().__init__(
            _read_blocks(reader, len(part)),
            status,
            {
                "Accept-Ranges": "bytes",
                "Content-Disposition": _format_disposition(file.name),
                "Content-Length": str(len(part)),
                "Content-Security-Policy": "sandbox",
                "ETag": etag,
                **more,
            },
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            with CancelScope(shield=True):  # close the file even if the client has disconnected
                await to_thread.run_sync(self._held.close)


def parse_range(header: str, size: int) -> range | None:
    """Return the positions that a header `Range` requests: empty if there are none, None for the whole file."""
    found = RANGE_PATTERN.fullmatch(header.strip())
    if found is None or not any(found.groups()):
        return None
    first, last = found.groups()
    if not first:
        return range(max(size - int(last), 0), size)
    if last and int(last) < int(first):
        return None  # invalid, and HTTP says to ignore it
    return range(int(first), min(int(last) + 1, size) if last else size)


def _read_blocks(reader: ByteReader, count: int) -> Iterator[bytes]:
    while count and (block := reader.read(min(BLOCK_BYTES, count))):
        count -= len(block)
        yield block


def _format_disposition(name: str) -> str:
    quoted = quote(name)
    return f'attachment; filename="{name}"' if quoted == name else f"attachment; filename*=utf-8''{quoted}"
