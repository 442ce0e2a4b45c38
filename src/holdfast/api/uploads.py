"""Receives uploaded files: a form with files, or a body that is one file.

Bytes are written to a temporary file as they arrive, so a large upload does not fill the memory.
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
    from collections.abc import AsyncIterator, Callable

    from fastapi import Request
    from starlette.datastructures import FormData

MAX_BYTES_IN_MEMORY = 1 << 20  # a larger body is written to the disk
MAX_FILES = 1000
MULTIPART_TYPE = "multipart/form-data"


@asynccontextmanager
async def receive_files(request: Request, *, name: str | None, parent: int | None) -> AsyncIterator[list[File]]:
    """Receive the files of a form, or the body as one file with this name."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() == MULTIPART_TYPE:
        with reporting_full_disk(IN_TEMPORARY_FOLDER):
            async with request.form(max_files=MAX_FILES, max_fields=MAX_FILES) as form:
                yield _files_of_form(form, parent)
        return
    if not name:
        raise RequestRejected(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type")
    async with spool_body(request) as body:
        yield [File(name=name, content=body, parent=parent)]


@asynccontextmanager
async def spool_body(request: Request, on_block: Callable[[bytes], None] | None = None) -> AsyncIterator[BinaryIO]:
    """Write the body of a request to a temporary file as it arrives, and yield the file at its start."""
    with reporting_full_disk(IN_TEMPORARY_FOLDER), SpooledTemporaryFile(max_size=MAX_BYTES_IN_MEMORY) as file:
        async for block in request.stream():
            if on_block is not None:
                on_block(block)
            file.write(block)
        file.seek(0)
        yield cast("BinaryIO", file)


def _files_of_form(form: FormData, parent: int | None) -> list[File]:
    metadata = _parse_metadata(form.get("metadata"))
    parts = [part for _, part in form.multi_items() if isinstance(part, UploadFile)]
    if not parts:
        raise RequestRejected(HTTPStatus.BAD_REQUEST, "bad_request", subcode="form_without_files")
    return [
        File(name=part.filename or "unnamed", content=part.file, metadata=metadata, parent=parent) for part in parts
    ]


def _parse_metadata(given: Any) -> dict[str, Any]:
    """Return the JSON object in the field `metadata` of a form; it applies to all files of the form."""
    if given is None:
        return {}
    try:
        read = json.loads(given)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadRequest("metadata_not_json", detail=error) from error
    if not isinstance(read, dict):
        raise BadRequest("metadata_not_an_object")
    return read
