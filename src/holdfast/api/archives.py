"""The routes of `/bases/{base}/archive` and `/archives`: export and restore a base as one file."""

from __future__ import annotations

from functools import partial
from tempfile import SpooledTemporaryFile
from typing import Annotated, BinaryIO, cast

from fastapi import APIRouter, Query, Request, Response, status
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from holdfast.api.auth import Service
from holdfast.api.bases import BaseName, base_path
from holdfast.api.uploads import MAX_BYTES_IN_MEMORY, spool_body
from holdfast.service.schemas import RestoredBase

router = APIRouter(tags=["archives"])

MEDIA_TYPE = "application/zip"
BLOCK_BYTES = 1 << 16


@router.get(
    "/bases/{base}/archive",
    response_class=StreamingResponse,
    responses={200: {"content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}}},
)
def export_base(
    service: Service,
    base: BaseName,
    memos: Annotated[bool, Query(description="Also export the paid answers.")] = True,
) -> StreamingResponse:
    """Return a base with its documents and settings as one file."""
    file = SpooledTemporaryFile(max_size=MAX_BYTES_IN_MEMORY)  # noqa: SIM115 - the response closes it
    try:
        service.archives.export(base, cast("BinaryIO", file), memos=memos)
    except BaseException:
        file.close()
        raise
    file.seek(0)

    def blocks() -> object:
        with file:
            while block := file.read(BLOCK_BYTES):
                yield block

    headers = {"Content-Disposition": 'attachment; filename="base.holdfast.zip"'}
    return StreamingResponse(blocks(), media_type=MEDIA_TYPE, headers=headers)  # type: ignore[arg-type]


@router.post(
    "/archives",
    status_code=status.HTTP_201_CREATED,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def restore_base(
    service: Service,
    request: Request,
    response: Response,
    name: Annotated[
        str | None, Query(min_length=1, max_length=200, description="Name of the new base; default: as in the archive.")
    ] = None,
) -> RestoredBase:
    """Create a base from an archive. Its documents are indexed again, with the paid answers of the archive."""
    async with spool_body(request) as file:
        restored = await run_in_threadpool(partial(service.archives.restore, file, name=name))
    response.headers["Location"] = base_path(restored.base)
    return restored
