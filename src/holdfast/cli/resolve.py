"""Resolves arguments: a document by id or name, the id of a job, and the default base."""

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
    """Return the id of a document, given as id, name or source. Raise `BadRequest` if several have the name."""
    if DOCUMENT_ID.fullmatch(word):
        return int(word)
    page = library.documents.list(base, text=word, size=MAX_PAGE_SIZE)
    found = [
        document for document in page.items if to_nfc(word) in (to_nfc(document.name), to_nfc(document.source or ""))
    ]
    if not found:
        raise UnknownItem(base, [f"'{word}'"])
    if len(found) > 1:
        documents = ", ".join(_format_match(library, base, document) for document in found[:MAX_MATCHES_SHOWN])
        raise BadRequest("name_ambiguous", count=len(found), base=base, name=word, documents=documents)
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
        context.terminal.info(f"Created base {name!r}, because it did not exist. Use --base to choose another base.")


def _format_match(library: Holdfast, base: str, document: Document) -> str:
    """Return the id of a document with its path in the base, such as `6 (docs/tides.md)`."""
    path, parent = document.name, document.parent
    while parent:
        folder = library.documents.get(base, parent)
        path, parent = f"{folder.name}/{path}", folder.parent
    return f"{document.id} ({path})"
