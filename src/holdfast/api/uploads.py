"""Receives files: from a form, or a body that is the file.

Bytes are written to a temporary file as they arrive, never held in memory as a whole.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from http import HTTPStatus
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from starlette.datastructures import UploadFile

from holdfast.api.problems import RequestRejected
from holdfast.disk import IN_TEMPORARY_FOLDER, reporting_full_disk
from holdfast.errors import BadRequest
from holdfast.service.documents import File

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fastapi import Request

MAX_BYTES_IN_MEMORY = 1 << 20  # bytes; the rest of a body is on the disk
MAX_FILES = 1000
MULTIPART_TYPE = "multipart/form-data"


@asynccontextmanager
async def receive_files(request: Request, *, name: str | None, parent: int | None) -> AsyncIterator[list[File]]:
    """Receive files from a form, or the body under the given name."""
    with reporting_full_disk(IN_TEMPORARY_FOLDER):
        async with _receive_files(request, name=name, parent=parent) as files:
            yield files


@asynccontextmanager
async def _receive_files(request: Request, *, name: str | None, parent: int | None) -> AsyncIterator[list[File]]:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() == MULTIPART_TYPE:
        async with request.form(max_files=MAX_FILES, max_fields=MAX_FILES) as form:
            metadata = _parse_metadata(form.get("metadata"))
            given = [part for _, part in form.multi_items() if isinstance(part, UploadFile)]
            if not given:
                raise RequestRejected(
                    HTTPStatus.BAD_REQUEST, "The form holds no file; send each as a part with a filename."
                )
            yield [
                File(
                    name=part.filename or "unnamed",
                    content=part.file,
                    metadata=metadata,
                    parent=parent,
                )
                for part in given
            ]
        return
    if not name:
        raise RequestRejected(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "Send a form with files (multipart/form-data), or the bytes themselves with ?name=.",
        )
    with SpooledTemporaryFile(max_size=MAX_BYTES_IN_MEMORY) as body:
        async for block in request.stream():
            body.write(block)
        body.seek(0)
        yield [File(name=name, content=cast("BinaryIO", body), parent=parent)]


def _parse_metadata(given: Any) -> dict[str, Any]:
    """Return the field `metadata` of a form: a JSON object that applies to all its files."""
    if given is None:
        return {}
    try:
        read = json.loads(given)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadRequest(f"`metadata` is not JSON that can be read: {error}.") from error
    if not isinstance(read, dict):
        raise BadRequest("`metadata` must be a JSON object.")
    return read
