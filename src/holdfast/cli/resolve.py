"""Resolves arguments: a document by number or name, the id of a job, and the default base."""

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
MAX_MATCHES_SHOWN = 5  # in the error about an ambiguous name
MAX_PAGE_SIZE = 500


def is_job_id(word: str) -> bool:
    return JOB_ID.fullmatch(word) is not None


def resolve_document(library: Holdfast, base: str, word: str) -> int:
    """Return the id of a document, given as id, name or source. An ambiguous name is refused."""
    if DOCUMENT_ID.fullmatch(word):
        return int(word)
    page = library.documents.list(base, text=word, size=MAX_PAGE_SIZE)
    found = [
        document for document in page.items if to_nfc(word) in (to_nfc(document.name), to_nfc(document.source or ""))
    ]
    if not found:
        raise UnknownItem(base, [word])
    if len(found) > 1:
        told = ", ".join(f"{document.id} ({_describe_location(document)})" for document in found[:MAX_MATCHES_SHOWN])
        raise BadRequest(
            f"{len(found)} documents of base {base!r} are called {word!r}; say which by its number: {told}."
        )
    return int(found[0].id)


def resolve_documents(library: Holdfast, base: str, words: Iterable[str]) -> list[int]:
    return list(dict.fromkeys(resolve_document(library, base, word) for word in words))


def ensure_base(context: CommandContext, library: Holdfast, name: str) -> None:
    """Create the default base at its first use; any other base must exist."""
    try:
        library.bases.get(name)
    except UnknownBase:
        if name != DEFAULT_BASE:
            raise UnknownBase(name) from None
        library.bases.create(name)
        context.terminal.info(f"Made the base {name!r}, because there was none; --base names another one.")


def _describe_location(document: Document) -> str:
    return f"in {document.parent}" if document.parent else document.source or "at the top"
