"""Documents go in and out. The row and the request for its indexes are one transaction: both or neither."""

from __future__ import annotations

import io
import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from holdfast.core.admission import Request
from holdfast.core.dependencies import SlotSpec
from holdfast.core.states import Operation
from holdfast.errors import BadRequest, StoreError
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

    def request(self, base: Base, owner: str, digest: str) -> Request:
        """Return the request for a document whose bytes have this digest."""
        return Request(
            base=base.key,
            owner=owner,
            operation=Operation.CHANGE,
            slots=self.slots,
            fingerprint=digest,
            requester=self.requester,
            priority=self.priority,
        )


class Moved(Exception):
    """A document is not what it was when we looked."""


class Shipment:
    """Documents of different names on their way into one transaction."""

    def __init__(self, base: Base, uploads: Sequence[Upload], same: Mapping[str, str]) -> None:
        self.base = base
        self.uploads = uploads
        self.same = same  # digests of those whose bytes are there already
        self.blobs: dict[str, Blob] = {}  # of all others
        self.useless: list[str] = []  # blobs that no row will name after the commit

    def write(self, tx: Transaction) -> list[tuple[str, str]]:
        """Write the rows; return the key and the digest of each document."""
        self.useless.clear()
        known = named(tx, self.base, [upload.name for upload in self.uploads])
        if any(name not in known or known[name].digest != digest for name, digest in self.same.items()):
            raise Moved
        new = [[self.base.id, *_row(one, self.blobs[one.name])] for one in self.uploads if one.name not in known]
        keys = {name: str(id_) for id_, name in tx.run(sql.CREATE_DOCUMENTS, new)}
        keys |= {name: document.key for name, document in known.items()}
        tx.run(sql.CHANGE_DOCUMENTS, list(self._changes(known)))
        digests = {**self.same, **{name: blob.digest for name, blob in self.blobs.items()}}
        return [(keys[upload.name], digests[upload.name]) for upload in self.uploads]

    def _changes(self, known: Mapping[str, Document]) -> Iterator[list[Any]]:
        """Yield the rows of documents that get new bytes; of the old blob and the new one, one is useless."""
        for upload in self.uploads:
            before, blob = known.get(upload.name), self.blobs.get(upload.name)
            if before is None or blob is None:
                continue
            if blob.digest == before.digest:
                self.useless.append(blob.name)
            else:
                self.useless.append(before.blob)
                yield [before.id, *_row(upload, blob)[1:]]


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
        """Put in documents of different names; bytes that are there already are not written again."""
        try:
            return self._ship(Shipment(base, uploads, self._same(base, uploads)), ask)
        except Moved:  # a document was changed or deleted after we looked
            return self._ship(Shipment(base, uploads, {}), ask)

    def _ship(self, shipment: Shipment, ask: Ask) -> list[Answer]:
        def write(tx: Transaction) -> list[Request]:
            return [ask.request(shipment.base, *document) for document in shipment.write(tx)]

        fresh = [upload for upload in shipment.uploads if upload.name not in shipment.same]
        blobs = self._blobs.put(_stream(upload.content) for upload in fresh)
        shipment.blobs.update(zip((upload.name for upload in fresh), blobs, strict=True))
        try:
            answers = self._store.admit_with(write)
        except StoreError:
            shipment.useless.clear()  # whether rows name the blobs is known to the database alone
            raise
        except BaseException:
            shipment.useless[:] = [blob.name for blob in shipment.blobs.values()]
            raise
        finally:
            for name in shipment.useless:
                self._blobs.remove(name)
        return answers

    def _same(self, base: Base, uploads: Sequence[Upload]) -> dict[str, str]:
        """Return the digests of those uploads whose bytes their documents have already."""
        prints = {one.name: sha256(one.content).hexdigest() for one in uploads if isinstance(one.content, bytes)}
        known = self._catalogue.documents(base, list(prints)) if prints else {}
        return {name: digest for name, digest in prints.items() if name in known and known[name].digest == digest}

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
