"""The errors of reading a file.

No message quotes the file: errors are stored and shown to users who may not see its text.
"""

from __future__ import annotations

from holdfast.errors import Permanent, Transient

MIB = 1 << 20


def unsupported_format(found: str) -> Permanent:
    return Permanent(
        "unsupported_format",
        f"The file is {found}, and no reader is known for that. "
        "Convert it to PDF, Word, HTML or plain text and add that.",
        params={"found": found},
    )


def encrypted() -> Permanent:
    return Permanent(
        "encrypted",
        "The file is protected by a password or a licence, so its text cannot be read. "
        "Save a copy without the protection and add that.",
    )


def unreadable() -> Permanent:
    return Permanent(
        "unreadable",
        "The file could not be read: it is damaged, cut off, or not what its name says. "
        "Open it in the program it comes from, save it again and add the new copy.",
    )


def no_text() -> Permanent:
    return Permanent(
        "no_text",
        "No text was found in the file: it is empty, or it holds only pictures. "
        "Add a version with text, for a scan one that went through text recognition.",
    )


def file_too_large(found: int, most: int) -> Permanent:
    return _too_large(f"The file has {_size(found)}, and at most {_size(most)} are read.", "Split it")


def unpacks_too_large(most: int) -> Permanent:
    return _too_large(
        f"The file unpacks to more than {_size(most)} or more than a document does: it may be a zip bomb.",
        "Save it again with its own program, or split it",
    )


def too_many_pages(found: int, most: int) -> Permanent:
    return _too_large(f"The file has {found} pages, and at most {most} are read.", "Split it")


def too_much_text(most: int) -> Permanent:
    return _too_large(f"The file holds more than {most} characters of text.", "Split it")


def too_slow(seconds: float) -> Permanent:
    return Permanent(
        "too_slow",
        f"Reading the file took longer than {seconds:g} seconds and was stopped: it is very large, or made to keep "
        "a reader busy. Split it, add it as plain text, or raise the time that reading may take.",
        params={"seconds": f"{seconds:g}"},
    )


def too_much_memory(most: int) -> Permanent:
    return Permanent(
        "too_much_memory",
        f"Reading the file needed more than {_size(most)} of memory and was stopped: it is very large, or made to "
        "fill a reader. Split it, add it as plain text, or raise the memory that reading may take.",
        params={"memory": str(most)},
    )


def reader_crashed() -> Permanent:
    return Permanent(
        "reader_crashed",
        "The reader crashed on the file and was replaced; nothing else was harmed. The file is damaged or shows a "
        "fault in the reader. Save it again, or add it as PDF or plain text.",
    )


def reader_failed() -> Permanent:
    return Permanent(
        "reader_failed",
        "The reader could not read the file. No damage was found in it, so it probably uses a feature or a variant of "
        "its format that the reader does not support. Save it as PDF or in the newest format of its program, or add "
        "it as plain text.",
    )


def reader_broken(library: str, why: str) -> Transient:
    return Transient(
        "reader_broken",
        f"{library}, which reads files of this format, does not work in the process that reads files: {why}. "
        "The file is not at fault. If this lasts, set TMPDIR to a folder with free space in which files can be written "
        "and libraries loaded (not mounted noexec), and restart.",
        params={"library": library, "why": why},
    )


def reader_missing() -> Permanent:
    return Permanent(
        "reader_missing",
        "This format is read by kreuzberg, which is not installed here. "
        "Install it with: pip install 'holdfast[documents]', and retry.",
    )


def file_missing() -> Permanent:
    return Permanent(
        "file_missing",
        "The file is not there any more: it was moved or deleted before it was read. Add it again.",
    )


def not_a_file() -> Permanent:
    return Permanent(
        "not_a_file",
        "The path leads to a directory, a device, a pipe or a loop of links, not to a file. Add a regular file.",
    )


def not_permitted() -> Permanent:
    return Permanent(
        "not_permitted",
        "The file may not be opened by the user this program runs as. Grant it the right to read and retry.",
    )


def file_unavailable() -> Transient:
    return Transient(
        "file_unavailable",
        "The file could not be read from its disk or network drive. If this lasts, check the drive.",
    )


def reader_unavailable() -> Transient:
    return Transient(
        "reader_unavailable",
        "The process that reads files could not be started, or was stopped from outside. If this lasts, check the "
        "memory and process limits of this machine.",
    )


def _too_large(what: str, next_step: str) -> Permanent:
    return Permanent("too_large", f"{what} {next_step}, or raise the limit for reading.")


def _size(count: int) -> str:
    return f"{count / MIB:.1f} MiB" if count >= MIB else f"{count} bytes"
