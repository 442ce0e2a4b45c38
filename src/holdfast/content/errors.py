"""Why a file was not read, each reason a sentence: what happened, why, and what to do next.

No sentence quotes the file: these errors are stored and shown where its text may not be.
"""

from __future__ import annotations

from holdfast.errors import Permanent, Transient

MIB = 1 << 20


def unsupported_format(found: str) -> Permanent:
    """Refuse a format that nobody here reads."""
    return Permanent(
        "unsupported_format",
        f"The file is {found}, and no reader is known for that. "
        "Convert it to PDF, Word, HTML or plain text and add that.",
        params={"found": found},
    )


def encrypted() -> Permanent:
    """Refuse what needs a password or a licence."""
    return Permanent(
        "encrypted",
        "The file is protected by a password or a licence, so its text cannot be read. "
        "Save a copy without the protection and add that.",
    )


def unreadable() -> Permanent:
    """Refuse what is damaged."""
    return Permanent(
        "unreadable",
        "The file could not be read: it is damaged, cut off, or not what its name says. "
        "Open it in the program it comes from, save it again and add the new copy.",
    )


def no_text() -> Permanent:
    """Refuse what holds no text."""
    return Permanent(
        "no_text",
        "No text was found in the file: it is empty, or it holds only pictures. "
        "Add a version with text, for a scan one that went through text recognition.",
    )


def file_too_large(found: int, most: int) -> Permanent:
    """Refuse a file that is larger than we open."""
    return _too_large(f"The file has {_size(found)}, and at most {_size(most)} are read.", "Split it")


def unpacks_too_large(most: int) -> Permanent:
    """Refuse a document that unpacks to more than we unpack."""
    return _too_large(
        f"The file unpacks to more than {_size(most)} or more than a document does: it may be a zip bomb.",
        "Save it again with its own program, or split it",
    )


def too_many_pages(found: int, most: int) -> Permanent:
    """Refuse a document with more pages than we read."""
    return _too_large(f"The file has {found} pages, and at most {most} are read.", "Split it")


def too_much_text(most: int) -> Permanent:
    """Refuse more text than we keep."""
    return _too_large(f"The file holds more than {most} characters of text.", "Split it")


def too_slow(seconds: float) -> Permanent:
    """Refuse what took too long."""
    return Permanent(
        "too_slow",
        f"Reading the file took longer than {seconds:g} seconds and was stopped: it is very large, or made to keep "
        "a reader busy. Split it, add it as plain text, or raise the time that reading may take.",
        params={"seconds": f"{seconds:g}"},
    )


def too_much_memory(most: int) -> Permanent:
    """Refuse what needs too much memory."""
    return Permanent(
        "too_much_memory",
        f"Reading the file needed more than {_size(most)} of memory and was stopped: it is very large, or made to "
        "fill a reader. Split it, add it as plain text, or raise the memory that reading may take.",
        params={"memory": str(most)},
    )


def reader_crashed() -> Permanent:
    """Refuse what breaks the reader."""
    return Permanent(
        "reader_crashed",
        "The reader crashed on the file and was replaced; nothing else was harmed. The file is damaged or shows a "
        "fault in the reader. Save it again, or add it as PDF or plain text.",
    )


def reader_failed() -> Permanent:
    """Refuse what our reader does not understand although the file shows no damage."""
    return Permanent(
        "reader_failed",
        "The reader could not read the file. No damage was found in it, so it probably uses a feature or a variant of "
        "its format that the reader does not support. Save it as PDF or in the newest format of its program, or add "
        "it as plain text.",
    )


def reader_broken(library: str, why: str) -> Transient:
    """Put off what our own reader could not read although the file is not at fault."""
    return Transient(
        "reader_broken",
        f"{library}, which reads files of this format, does not work in the process that reads files: {why}. "
        "The file is not at fault. If this lasts, set TMPDIR to a folder with free space in which files can be written "
        "and libraries loaded (not mounted noexec), and restart.",
        params={"library": library, "why": why},
    )


def reader_missing() -> Permanent:
    """Refuse what needs a library that is not installed."""
    return Permanent(
        "reader_missing",
        "This format is read by kreuzberg, which is not installed here. "
        "Install it with: pip install 'holdfast[documents]', and retry.",
    )


def file_missing() -> Permanent:
    """Refuse what is not there."""
    return Permanent(
        "file_missing",
        "The file is not there any more: it was moved or deleted before it was read. Add it again.",
    )


def not_a_file() -> Permanent:
    """Refuse what is no regular file."""
    return Permanent(
        "not_a_file",
        "The path leads to a directory, a device, a pipe or a loop of links, not to a file. Add a regular file.",
    )


def not_permitted() -> Permanent:
    """Refuse what we may not open."""
    return Permanent(
        "not_permitted",
        "The file may not be opened by the user this program runs as. Grant it the right to read and retry.",
    )


def file_unavailable() -> Transient:
    """Put off what the disk or the network drive did not give us."""
    return Transient(
        "file_unavailable",
        "The file could not be read from its disk or network drive. If this lasts, check the drive.",
    )


def reader_unavailable() -> Transient:
    """Put off what we had no reader for; the file is not to blame."""
    return Transient(
        "reader_unavailable",
        "The process that reads files could not be started, or was stopped from outside. If this lasts, check the "
        "memory and process limits of this machine.",
    )


def _too_large(what: str, next_step: str) -> Permanent:
    return Permanent("too_large", f"{what} {next_step}, or raise the limit for reading.")


def _size(count: int) -> str:
    return f"{count / MIB:.1f} MiB" if count >= MIB else f"{count} bytes"
