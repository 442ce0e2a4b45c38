"""The door to the text of files: `read` gives a `Reading`, or says why there is none.

Small plain text is decoded here. Everything else is read in a cage, a child process with limits that is killed when
it exceeds them (see `cage`), because parsers meet files that were made to break them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.content import errors
from holdfast.content.readers.base import MIB, Limits, Reader, Reading
from holdfast.content.readers.choosing import PREPARE, TARGET, question, read_as
from holdfast.content.readers.files import explained, measured
from holdfast.content.readers.kinds import FETCHED, HEAD_BYTES, HTML, identify
from holdfast.content.sandbox import Answer, Cage

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Limits", "Reader", "Reading", "open_cage", "read"]

AT_ONCE = 4 * MIB  # plain text up to here is decoded in this process
UTF8_BYTES = 4  # a character has at most
SPARE = 1 << 16
USUAL = Limits()
SHARED = Cage(TARGET, prepare=PREPARE)  # starts its child when it is first asked


def read(
    path: Path,
    name: str,
    limits: Limits = USUAL,
    *,
    cage: Cage | None = None,
    fetched: bool = False,
    spare: Path | None = None,
) -> Reading:
    """Read the file at `path`, which people call `name`; without a `cage`, in the one child this process shares.

    Of a web page that was `fetched` only the main part is read, without menus and footers. The reader unpacks its
    libraries in `spare` if the temporary folder is not suitable.
    Raises `Permanent` if the file cannot be read, `Transient` if it could not be read now.
    """
    with explained():
        size = measured(path, limits)
        with path.open("rb") as file:
            kind = identify(file.read(HEAD_BYTES), name)
        kind = FETCHED if fetched and kind == HTML else kind
        if kind.plain and size <= AT_ONCE:
            return read_as(kind, path, name, limits)
    most = limits.text * UTF8_BYTES + SPARE
    asked = question(kind, path, name, limits)
    answer = (cage or SHARED).ask(asked, seconds=limits.seconds, memory=limits.memory, most=most, spare=spare)
    return _reading(answer, limits)


def open_cage(children: int = 1) -> Cage:
    """Open a cage in which this many files are read at once; its owner closes it."""
    return Cage(TARGET, prepare=PREPARE, children=children)


def _reading(answer: Answer, limits: Limits) -> Reading:
    """Build the reading from a child's answer, which is believed only as far as its shape is right."""
    try:
        text = answer.body.decode()
        head: dict[str, Any] = answer.head
        reading = Reading(
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
