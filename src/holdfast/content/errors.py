"""The errors of reading a file that more than one place raises or that have computed parameters.

No parameter quotes the file: errors are stored and shown to users who may not see its text.
"""

from __future__ import annotations

from holdfast.errors import Permanent, Transient

MIB = 1 << 20


def encrypted() -> Permanent:
    return Permanent("encrypted")


def unreadable() -> Permanent:
    return Permanent("unreadable")


def no_text() -> Permanent:
    return Permanent("no_text")


def file_too_large(found: int, most: int) -> Permanent:
    return Permanent("file_too_large", params={"size": format_size(found), "most": format_size(most)})


def unpacked_too_large(most: int) -> Permanent:
    return Permanent("unpacked_too_large", params={"most": format_size(most)})


def too_much_text(most: int) -> Permanent:
    return Permanent("too_much_text", params={"most": f"{most:,}"})


def too_slow(seconds: float) -> Permanent:
    return Permanent("too_slow", params={"seconds": f"{seconds:g}"})


def too_much_memory(most: int) -> Permanent:
    return Permanent("too_much_memory", params={"memory": format_size(most)})


def reader_crashed() -> Permanent:
    return Permanent("reader_crashed")


def reader_failed() -> Permanent:
    return Permanent("reader_failed")


def reader_unavailable() -> Transient:
    return Transient("reader_unavailable")


def file_missing() -> Permanent:
    return Permanent("file_missing")


def not_a_file() -> Permanent:
    return Permanent("not_a_file")


def format_size(count: int) -> str:
    """Format a number of bytes for a message: `1.5 MiB`, or `300 B` below one MiB."""
    return f"{round(count / MIB, 1):g} MiB" if count >= MIB else f"{count} B"
