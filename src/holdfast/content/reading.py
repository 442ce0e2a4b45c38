"""Extracts the text of a file: `read` returns an `ExtractedText`, or raises the reason why there is none.

Small plain text is decoded in this process. Everything else is parsed in a sandbox: a child process with limits that is
killed when it exceeds them (see `sandbox`), because some files are made to break parsers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.content import errors
from holdfast.content.errors import MIB
from holdfast.content.readers.base import ExtractedText, ReadLimits
from holdfast.content.readers.dispatch import PREPARE, TARGET, build_request, read_in_process
from holdfast.content.readers.files import check_size, translate_os_errors
from holdfast.content.readers.formats import FETCHED_HTML, HEAD_BYTES, HTML, identify_format
from holdfast.content.sandbox import Sandbox, SandboxReply

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast.process_usage import ProcessUsage

__all__ = ["ExtractedText", "ReadLimits", "open_sandbox", "read"]

IN_PROCESS_BYTES = 4 * MIB  # plain text up to here is decoded in this process
UTF8_BYTES = 4  # of the longest character
REPLY_SLACK_BYTES = 1 << 16
DEFAULT_LIMITS = ReadLimits()
SHARED_SANDBOX = Sandbox(TARGET, prepare=PREPARE)  # starts its child at the first call


def read(
    path: Path,
    name: str,
    limits: ReadLimits = DEFAULT_LIMITS,
    *,
    sandbox: Sandbox | None = None,
    fetched: bool = False,
    spare: Path | None = None,
    report: Callable[[ProcessUsage], None] = lambda _: None,
) -> ExtractedText:
    """Read the file at `path`; `name` is its name for users, whose extension helps to identify the format.

        extracted = read(Path("/blobs/4f2a"), "report.pdf")
        extracted.text, extracted.title, extracted.pages

    Without a `sandbox`, the shared one of this process is used. Of a `fetched` web page only the main part is read,
    without menus and footers. The reader unpacks its libraries in `spare` if the temporary folder is not suitable.
    `report` receives what the sandbox used, also for a file that cannot be read.
    Raises `Permanent` if the file cannot be read, and `Transient` if a later attempt may succeed.
    """
    with translate_os_errors():
        size = check_size(path, limits)
        with path.open("rb") as file:
            format_ = identify_format(file.read(HEAD_BYTES), name)
        format_ = FETCHED_HTML if fetched and format_ == HTML else format_
        if format_.plain and size <= IN_PROCESS_BYTES:
            return read_in_process(format_, path, name, limits)
    reply = (sandbox or SHARED_SANDBOX).call(
        build_request(format_, path, name, limits),
        seconds=limits.seconds,
        memory=limits.memory,
        most=limits.text * UTF8_BYTES + REPLY_SLACK_BYTES,
        spare=spare,
        report=report,
    )
    return _parse_reply(reply, limits)


def open_sandbox(children: int = 1) -> Sandbox:
    """Open a sandbox that reads this many files at once; the caller closes it."""
    return Sandbox(TARGET, prepare=PREPARE, children=children)


def _parse_reply(reply: SandboxReply, limits: ReadLimits) -> ExtractedText:
    """Validate the reply of a child, which a hostile file may have written."""
    try:
        text = reply.body.decode()
        head: dict[str, Any] = reply.head
        extracted = ExtractedText(
            text=text,
            title=None if head["title"] is None else str(head["title"]),
            pages=tuple(min(int(start), len(text)) for start in head["pages"]),
            metadata={str(key): str(value) for key, value in head["metadata"].items()},
            warnings=tuple(str(warning) for warning in head["warnings"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise errors.reader_crashed() from None
    if len(text) > limits.text:
        raise errors.too_much_text(limits.text)
    return extracted
