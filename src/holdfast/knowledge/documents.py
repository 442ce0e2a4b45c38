"""Documents go in and out. The row and the request for its indexes are one transaction: both or neither."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from holdfast.core.admission import Request
from holdfast.core.dependencies import SlotSpec
from holdfast.core.states import Operation
from holdfast.errors import BadRequest
from holdfast.indexes.documents import CONTENT
from holdfast.library import statements as sql
from holdfast.library.catalogue import named

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from holdfast.core.admission import Answer
    from holdfast.indexes.registry import Indexes
    from holdfast.library.blobs import Blob, Blobs
    from holdfast.library.catalogue import Base, Catalogue, Document
    from holdfast.stores.database import Transaction
    from holdfast.stores.sql import SqlStore

LONGEST_NAME = 1_000
TOGETHER = 100  # documents put in by one transaction


class Upload(NamedTuple):
    """A document on its way in."""

    name: str
    content: bytes | BinaryIO
    metadata: Mapping[str, Any] = {}


class Ask(NamedTuple):
    """What is asked for each document of an upload."""

    slots: tuple[SlotSpec, ...]
    requester: str
    priority: int

    def request(self, base: Base, owner: str, blob: Blob) -> Request:
        """Return the request for a document with these bytes."""
        return Request(
            base=base.key,
            owner=owner,
            operation=Operation.CHANGE,
            slots=self.slots,
            fingerprint=blob.digest,
            requester=self.requester,
            priority=self.priority,
        )


class Documents:
    """The documents of all bases."""

    def __init__(self, store: SqlStore, catalogue: Catalogue, blobs: Blobs, indexes: Indexes) -> None:
        self._store = store
        self._catalogue = catalogue
        self._blobs = blobs
        self._indexes = indexes

    def put(self, base: Base, uploads: Iterable[Upload], *, requester: str = "", priority: int = 5) -> list[Answer]:
        """Add documents, or change those of the same name; the same content again costs nothing."""
        specs = self._slots(base)
        answers: list[Answer] = []
        for portion in _portions(uploads):
            answers += self._put(base, portion, Ask(specs, requester, priority))
        return answers

    def delete(self, base: Base, name: str, *, requester: str = "") -> Answer:
        """Delete a document: from now on it is found nowhere, and its name is free."""
        document = self.find(base, name)
        request = Request(base=base.key, owner=document.key, operation=Operation.DELETE, requester=requester)

        def hide(tx: Transaction) -> list[Request]:
            tx.run(sql.HIDE_DOCUMENTS, [[document.id]])
            return [request]

        return self._store.admit_with(hide)[0]

    def ask(self, base: Base, name: str, operation: Operation, *, requester: str = "") -> Answer:
        """Ask for something to be done about a document that is there: retry, force, reindex, cancel."""
        if operation in (Operation.CHANGE, Operation.DELETE):
            raise BadRequest(f"To {operation} a document, use its own verb; it does more than the indexes.")
        slots = () if operation is Operation.CANCEL else self._slots(base)
        request = Request(
            base=base.key,
            owner=self.find(base, name).key,
            operation=operation,
            slots=slots,
            requester=requester,
        )
        return self._store.admit([request])[0]

    def find(self, base: Base, name: str) -> Document:
        """Find a document by its name."""
        document = self._catalogue.documents(base, [name]).get(name)
        if document is None:
            raise BadRequest(f"There is no document {name!r} in base {base.name!r}; it was deleted or never added.")
        return document

    def _put(self, base: Base, uploads: Sequence[Upload], ask: Ask) -> list[Answer]:
        """Put in documents of different names; of a blob that no row came to name, the file is removed."""
        fresh: list[Blob] = []
        useless: list[str] = []

        def write(tx: Transaction) -> list[Request]:
            useless.clear()
            known = named(tx, base, [upload.name for upload in uploads])
            rows = [
                [base.id, *_row(one, blob)] for one, blob in zip(uploads, fresh, strict=True) if one.name not in known
            ]
            keys = {name: str(id_) for id_, name in tx.run(sql.CREATE_DOCUMENTS, rows)}
            changed = []
            for upload, blob in zip(uploads, fresh, strict=True):
                before = known.get(upload.name)
                if before is not None:
                    keys[upload.name] = before.key
                    same = before.digest == blob.digest
                    useless.append(blob.name if same else before.blob)
                    changed += [] if same else [[before.id, *_row(upload, blob)[1:]]]
            tx.run(sql.CHANGE_DOCUMENTS, changed)
            return [ask.request(base, keys[one.name], blob) for one, blob in zip(uploads, fresh, strict=True)]

        try:
            fresh += (self._blobs.put(_stream(upload.content)) for upload in uploads)
            answers = self._store.admit_with(write)
        except BaseException:
            useless[:] = [blob.name for blob in fresh]
            raise
        finally:
            for name in useless:
                self._blobs.remove(name)
        return answers

    def _slots(self, base: Base) -> tuple[SlotSpec, ...]:
        can, _ = self._indexes.enabled(base)
        return (SlotSpec(CONTENT), *(SlotSpec(kind, CONTENT) for kind in can))


def _check(upload: Upload) -> None:
    """Refuse a name that nobody could ask for again."""
    if not upload.name.strip() or len(upload.name) > LONGEST_NAME or "\0" in upload.name:
        raise BadRequest(f"A document needs a name of 1 to {LONGEST_NAME} characters without zero bytes.")


def _portions(uploads: Iterable[Upload]) -> Iterator[list[Upload]]:
    """Split into transactions: bounded, and each name at most once in each."""
    portion: dict[str, Upload] = {}
    for upload in uploads:
        _check(upload)
        if upload.name in portion or len(portion) == TOGETHER:
            yield list(portion.values())
            portion = {}
        portion[upload.name] = upload
    if portion:
        yield list(portion.values())


def _row(upload: Upload, blob: Blob) -> list[Any]:
    return [upload.name, blob.name, blob.digest, blob.size, json.dumps(dict(upload.metadata), ensure_ascii=False)]


def _stream(content: bytes | BinaryIO) -> BinaryIO:
    return io.BytesIO(content) if isinstance(content, bytes) else content
