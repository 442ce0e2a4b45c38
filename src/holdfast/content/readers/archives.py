"""Zip containers, looked through before anything parses them: Word, Excel, PowerPoint, OpenDocument and EPUB are zips.

Headers lie, so every entry is unpacked here, in small pieces that are counted and dropped. Refused are containers
that unpack to more than the limit, that shrink further than documents do, that have absurdly many entries, whose
entries share their bytes, that unpack to more than they declare, and whose XML declares entities. What is nested
inside is counted as it lies there, packed, because no reader opens it.

Each entry is described twice, in the list at the end of the file and before its bytes, and has a checksum. Where these
disagree the file is damaged, and nothing else that it says of itself (a password, a huge size) is believed. Only the
checksums of pictures and the like are not compared: a damaged picture does not change the text.
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
MAX_COMPRESSION_RATIO = 200  # times; text shrinks 5 to 20 times, repetitive sheets 100 times, a bomb 1000 times
RATIO_CHECK_BYTES = 8 << 20  # bytes: what is smaller may shrink as it likes
LOCAL_HEADER = struct.Struct("<4s2xHH8x2IHH")  # signature, flags, method, packed size, size, lengths of name and extra
PIECE = 1 << 18
XML_NAMES = (".xml", ".rels", ".opf", ".ncx", ".xhtml", ".html", ".htm")
TEXT_NAMES = (*XML_NAMES, ".bin")  # binary workbooks keep their sheets in .bin
ENTITIES = (b"<!ENTITY", "<!ENTITY".encode("utf-16-le"), "<!ENTITY".encode("utf-16-be"))
LONGEST_ENTITY_MARK = max(len(mark) for mark in ENTITIES)
ENCRYPTED_FLAG = 0x1
SIZES_FOLLOW_FLAG = 0x8  # the sizes stand behind the bytes
ZIP64_SIZE = 0xFFFFFFFF  # the size has more than 32 bits and stands in the extra field


def inspect_zip(path: Path, limits: ReadLimits) -> FileFormat:
    """Say what a zip container holds; refuse it if it is dangerous, damaged or protected."""
    try:
        with BoundedFile(path) as file, zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            if len(entries) > MOST_ENTRIES:
                raise errors.unpacks_too_large(limits.expanded)
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
    """Refuse entries that lie over each other: the same bytes would be unpacked many times."""
    places = sorted((entry.header_offset, _data_offset(entry, file) + entry.compress_size) for entry in entries)
    if any(after < end for (_, end), (after, _) in pairwise(places)):
        raise errors.unreadable()


def _check_sizes(entries: list[zipfile.ZipInfo], limits: ReadLimits) -> None:
    """Judge by what is declared; that it is true is checked later."""
    if any(entry.flag_bits & ENCRYPTED_FLAG for entry in entries):
        raise errors.encrypted()
    swollen = any(
        entry.file_size > RATIO_CHECK_BYTES and entry.file_size > entry.compress_size * MAX_COMPRESSION_RATIO
        for entry in entries
    )
    if swollen or sum(entry.file_size for entry in entries) > limits.expanded:
        raise errors.unpacks_too_large(limits.expanded)


def _check_content(entry: zipfile.ZipInfo, file: BinaryIO) -> None:
    """Unpack one entry and drop it; refuse it if it is not what was declared, or could grow when parsed."""
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
    """Unpack without believing the declared size; other methods than these two are not used by documents."""
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
    """Find where the packed bytes of an entry begin; refuse an entry that is described in two different ways."""
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
