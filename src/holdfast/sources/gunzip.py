"""Decompresses gzip piece by piece up to a limit, against decompression bombs."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from holdfast.sources import errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

GZIP = zlib.MAX_WBITS | 16
GZIP_MAGIC = b"\x1f\x8b"


class BadGzip(Exception):
    """The bytes are not gzip or are truncated."""


def join_limited(pieces: Iterable[bytes], most: int) -> bytes:
    """Join pieces; refuse more than `most` bytes."""
    body = bytearray()
    for piece in pieces:
        if len(body) + len(piece) > most:
            raise errors.page_too_large(most)
        body += piece
    return bytes(body)


def decompress(pieces: Iterable[bytes], most: int) -> Iterator[bytes]:
    """Yield the decompressed bytes of all gzip members, in pieces of at most `most` + 1 bytes."""
    member = zlib.decompressobj(GZIP)
    begun = False
    for piece in pieces:
        rest = piece
        while rest:
            if member.eof:
                member = zlib.decompressobj(GZIP)
            begun = True
            try:
                yield member.decompress(rest, most + 1)
            except zlib.error:
                raise BadGzip from None
            rest = member.unconsumed_tail or member.unused_data
    if begun and not member.eof:
        raise BadGzip
