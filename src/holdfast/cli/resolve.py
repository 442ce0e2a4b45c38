"""What people call a document: its number, or its name; and what a job looks like."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast.errors import BadRequest, UnknownBase, UnknownItem
from holdfast.wellformed import to_nfc

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.cli.command import CommandContext
    from holdfast.service.client import Holdfast
    from holdfast.service.schemas import Document

from holdfast.cli.options import DEFAULT_BASE

JOB_ID = re.compile(r"[0-9a-f]{32}")
DOCUMENT_ID = re.compile(r"[1-9][0-9]{0,18}")
MAX_MATCHES_SHOWN = 5  # of several that are meant
MAX_PAGE_SIZE = 500


def is_job_id(word: str) -> bool:
    """Tell whether a word is the id of a job."""
    return JOB_ID.fullmatch(word) is not None


def resolve_document(library: Holdfast, base: str, word: str) -> int:
    """Return the number of the document that is meant."""
    if DOCUMENT_ID.fullmatch(word):
        return int(word)
    page = library.documents.list(base, text=word, size=MAX_PAGE_SIZE)
    found = [one for one in page.items if to_nfc(word) in (to_nfc(one.name), to_nfc(one.source or ""))]
    if not found:
        raise UnknownItem(base, [word])
    if len(found) > 1:
        told = ", ".join(f"{one.id} ({_describe_location(one)})" for one in found[:MAX_MATCHES_SHOWN])
        raise BadRequest(
            f"{len(found)} documents of base {base!r} are called {word!r}; say which by its number: {told}."
        )
    return int(found[0].id)


def resolve_documents(library: Holdfast, base: str, words: Iterable[str]) -> list[int]:
    """Return the numbers of the documents that are meant, each once."""
    return list(dict.fromkeys(resolve_document(library, base, word) for word in words))


def ensure_base(context: CommandContext, library: Holdfast, name: str) -> None:
    """Make the usual base when it is used for the first time; any other must be there."""
    try:
        library.bases.get(name)
    except UnknownBase:
        if name != DEFAULT_BASE:
            raise UnknownBase(name) from None
        library.bases.create(name)
        context.terminal.info(f"Made the base {name!r}, because there was none; --base names another one.")


def _describe_location(one: Document) -> str:
    return f"in {one.parent}" if one.parent else one.source or "at the top"
