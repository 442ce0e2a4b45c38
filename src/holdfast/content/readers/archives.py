"""Checks zip containers before any parser opens them: Word, Excel, PowerPoint, OpenDocument and EPUB are zips.

Headers can lie, so every entry is unpacked here, in small pieces that are counted and dropped. These containers are
refused: larger than the limit when unpacked, a higher compression ratio than documents have, too many entries, entries
that share bytes, entries larger than declared, XML that declares entities. Nested archives count with their packed
size, because no reader opens them.

Each entry is described twice, in the central directory and before its bytes, and has a checksum. If these disagree, the
file is damaged, and nothing else in its headers (a password, a huge size) is trusted. Checksums of pictures and other
media are not compared: a damaged picture does not change the text.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from itertools import pairwise
from typing import TYPE_CHECKING

from holdfast.content import errors
from holdfast.content.readers.files import BoundedFile
from holdfast.content.readers.formats import FileFormat, identify_zip

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

    from holdfast.content.readers.base import ReadLimits

MOST_ENTRIES = 10_000
MAX_COMPRESSION_RATIO = 200  # text has 5 to 20, repetitive sheets 100, a zip bomb 1000
RATIO_CHECK_BYTES = 8 << 20  # the ratio of smaller entries is not checked
LOCAL_HEADER = struct.Struct("<4s2xHH8x2IHH")  # signature, flags, method, packed size, size, lengths of name and extra
PIECE = 1 << 18
XML_NAMES = (".xml", ".rels", ".opf", ".ncx", ".xhtml", ".html", ".htm")
TEXT_NAMES = (*XML_NAMES, ".bin")  # binary workbooks keep their sheets in .bin
ENTITIES = (b"<!ENTITY", "<!ENTITY".encode("utf-16-le"), "<!ENTITY".encode("utf-16-be"))
LONGEST_ENTITY_MARK = max(len(mark) for mark in ENTITIES)
ENCRYPTED_FLAG = 0x1
SIZES_FOLLOW_FLAG = 0x8  # the sizes follow the data
ZIP64_SIZE = 0xFFFFFFFF  # the real size has 64 bits and is in the extra field


def inspect_zip(path: Path, limits: ReadLimits) -> FileFormat:
    """Return the format of a zip container; refuse it if it is dangerous, damaged or protected."""
    try:
        with BoundedFile(path) as file, zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            if len(entries) > MOST_ENTRIES:
                raise errors.unpacked_too_large(limits.expanded)
            _check_places(entries, file)
            _check_sizes(entries, limits)
            for entry in entries:
                _check_content(entry, file)
            mime = archive.read("mimetype") if "mimetype" in archive.namelist() else b""
    except NotImplementedError:
        raise errors.reader_failed() from None
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError):
        raise errors.unreadable() from None
    return identify_zip([entry.filename for entry in entries], mime)


def _check_places(entries: list[zipfile.ZipInfo], file: BinaryIO) -> None:
    """Refuse overlapping entries: the same bytes would be unpacked many times."""
    places = sorted((entry.header_offset, _data_offset(entry, file) + entry.compress_size) for entry in entries)
    if any(after < end for (_, end), (after, _) in pairwise(places)):
        raise errors.unreadable()


def _check_sizes(entries: list[zipfile.ZipInfo], limits: ReadLimits) -> None:
    """Check the declared sizes; `_check_content` verifies them."""
    if any(entry.flag_bits & ENCRYPTED_FLAG for entry in entries):
        raise errors.encrypted()
    swollen = any(
        entry.file_size > RATIO_CHECK_BYTES and entry.file_size > entry.compress_size * MAX_COMPRESSION_RATIO
        for entry in entries
    )
    if swollen or sum(entry.file_size for entry in entries) > limits.expanded:
        raise errors.unpacked_too_large(limits.expanded)


def _check_content(entry: zipfile.ZipInfo, file: BinaryIO) -> None:
    """Unpack one entry without keeping it; refuse it if it differs from its header, or declares entities."""
    size, checksum, tail = 0, 0, b""
    is_xml = entry.filename.lower().endswith(XML_NAMES)
    for piece in _decompress(entry, file):
        size += len(piece)
        checksum = zlib.crc32(piece, checksum)
        if size > entry.file_size:
            raise errors.unreadable()
        if is_xml and any(mark in tail + piece for mark in ENTITIES):
            raise errors.reader_failed()
        tail = piece[-LONGEST_ENTITY_MARK:]
    if checksum != entry.CRC and entry.filename.lower().endswith(TEXT_NAMES):
        raise errors.unreadable()


def _decompress(entry: zipfile.ZipInfo, file: BinaryIO) -> Iterator[bytes]:
    """Unpack without trusting the declared size; documents use only these two methods."""
    if entry.compress_type == zipfile.ZIP_STORED:
        yield from _read_compressed(entry, file)
    elif entry.compress_type == zipfile.ZIP_DEFLATED:
        unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        for packed in _read_compressed(entry, file):
            rest = packed
            while rest and not unpacker.eof:
                yield unpacker.decompress(rest, PIECE)
                rest = unpacker.unconsumed_tail
        yield unpacker.flush()
    else:
        raise NotImplementedError


def _read_compressed(entry: zipfile.ZipInfo, file: BinaryIO) -> Iterator[bytes]:
    file.seek(_data_offset(entry, file))
    left = entry.compress_size
    while left:
        packed = file.read(min(left, PIECE))
        if not packed:
            raise EOFError
        left -= len(packed)
        yield packed


def _data_offset(entry: zipfile.ZipInfo, file: BinaryIO) -> int:
    """Return where the packed bytes of an entry begin; refuse an entry whose two headers disagree."""
    file.seek(entry.header_offset)
    signature, flags, method, packed, size, name_length, extra_length = LOCAL_HEADER.unpack(
        file.read(LOCAL_HEADER.size)
    )
    sizes = {entry.compress_size, entry.file_size} if flags & SIZES_FOLLOW_FLAG else {packed, size}
    same = (
        signature == b"PK\x03\x04"
        and method == entry.compress_type
        and not (flags ^ entry.flag_bits) & ENCRYPTED_FLAG
        and (ZIP64_SIZE in sizes or sizes == {entry.compress_size, entry.file_size})
    )
    if not same:
        raise zipfile.BadZipFile
    return entry.header_offset + LOCAL_HEADER.size + int(name_length) + int(extra_length)
