"""The door to the text of files: `read` gives a `Reading`, or says why there is none.

Small plain text is decoded here. Everything else is read in a cage, a child process with limits that is killed when
it exceeds them (see `cage`), because parsers meet files that were made to break them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.content import errors
from holdfast.content.readers.base import MIB, ExtractedText, Reader, ReadLimits
from holdfast.content.readers.dispatch import PREPARE, TARGET, build_request, read_in_process
from holdfast.content.readers.files import check_size, translate_os_errors
from holdfast.content.readers.formats import FETCHED_HTML, HEAD_BYTES, HTML, identify_format
from holdfast.content.sandbox import Sandbox, SandboxReply

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ExtractedText", "ReadLimits", "Reader", "open_sandbox", "read"]

IN_PROCESS_BYTES = 4 * MIB  # plain text up to here is decoded in this process
UTF8_BYTES = 4  # a character has at most
REPLY_SLACK_BYTES = 1 << 16
DEFAULT_LIMITS = ReadLimits()
SHARED_SANDBOX = Sandbox(TARGET, prepare=PREPARE)  # starts its child when it is first asked


def read(
    path: Path,
    name: str,
    limits: ReadLimits = DEFAULT_LIMITS,
    *,
    cage: Sandbox | None = None,
    fetched: bool = False,
    spare: Path | None = None,
) -> ExtractedText:
    """Read the file at `path`, which people call `name`; without a `cage`, in the one child this process shares.

    Of a web page that was `fetched` only the main part is read, without menus and footers. The reader unpacks its
    libraries in `spare` if the temporary folder is not suitable.
    Raises `Permanent` if the file cannot be read, `Transient` if it could not be read now.
    """
    with translate_os_errors():
        size = check_size(path, limits)
        with path.open("rb") as file:
            kind = identify_format(file.read(HEAD_BYTES), name)
        kind = FETCHED_HTML if fetched and kind == HTML else kind
        if kind.plain and size <= IN_PROCESS_BYTES:
            return read_in_process(kind, path, name, limits)
    most = limits.text * UTF8_BYTES + REPLY_SLACK_BYTES
    asked = build_request(kind, path, name, limits)
    answer = (cage or SHARED_SANDBOX).call(asked, seconds=limits.seconds, memory=limits.memory, most=most, spare=spare)
    return _parse_reply(answer, limits)


def open_sandbox(children: int = 1) -> Sandbox:
    """Open a cage in which this many files are read at once; its owner closes it."""
    return Sandbox(TARGET, prepare=PREPARE, children=children)


def _parse_reply(answer: SandboxReply, limits: ReadLimits) -> ExtractedText:
    """Build the reading from a child's answer, which is believed only as far as its shape is right."""
    try:
        text = answer.body.decode()
        head: dict[str, Any] = answer.head
        reading = ExtractedText(
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
    return reading
