"""A base as one file: taken along, and put in elsewhere without being paid for again."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from holdfast.access.callers import Scope
from holdfast.front.checking import Checked
from holdfast.front.values import Exported, Restored
from holdfast.knowledge.archives import Restoring

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.front.reception import Reception


class LocalArchives(Checked):
    """Bases of a database as files, and back."""

    def __init__(self, reception: Reception) -> None:
        self._at = reception
        self._archives = reception.library.archives

    def export(self, base: str, to: Path | BinaryIO, *, memos: bool = True) -> Exported:
        """Write a base with its documents and settings into a file, and what was paid for, unless that is left out."""
        done = self._archives.export(self._at.open(base, Scope.ADMIN), to, memos=memos)
        return Exported(bytes=done.bytes)

    def restore(self, archive: Path | BinaryIO, *, name: str | None = None) -> Restored:
        """Make a base from such a file; its documents are indexed again, from the answers that were paid for."""
        self._at.everywhere(Scope.ADMIN)
        done = self._archives.restore(archive, name=name, manner=Restoring(requester=self._at.requester))
        return Restored(base=done.base.name, documents=done.documents, memos=done.memos, skipped=done.skipped)
