"""A base as one file: taken along, and put in elsewhere without being paid for again."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from holdfast.auth import Scope
from holdfast.bases.archives import RestoreOptions
from holdfast.service.schemas import ExportResult, RestoredBase
from holdfast.service.validation import ValidatedOperations

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.service.authorization import Authorization


class LocalArchives(ValidatedOperations):
    """Bases of a database as files, and back."""

    def __init__(self, authorization: Authorization) -> None:
        self._authorization = authorization
        self._archives = authorization.library.archives

    def export(self, base: str, to: Path | BinaryIO, *, memos: bool = True) -> ExportResult:
        """Write a base with its documents and settings into a file, and what was paid for, unless that is left out."""
        done = self._archives.export(self._authorization.find_base(base, Scope.ADMIN), to, memos=memos)
        return ExportResult(bytes=done.bytes)

    def restore(self, archive: Path | BinaryIO, *, name: str | None = None) -> RestoredBase:
        """Make a base from such a file; its documents are indexed again, from the answers that were paid for."""
        self._authorization.require_all_bases(Scope.ADMIN)
        return self._archives.restore(
            archive, name=name, options=RestoreOptions(requester=self._authorization.requester)
        )
