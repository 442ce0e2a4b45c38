"""Exports bases to archive files, and restores them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from holdfast.auth import Scope
from holdfast.bases import RestoredBase, RestoreOptions
from holdfast.service.validation import ValidatedOperations

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.service.authorization import Authorization


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """The size of an exported archive."""

    bytes: int


class LocalArchives(ValidatedOperations):
    def __init__(self, authorization: Authorization) -> None:
        self._authorization = authorization
        self._archives = authorization.library.archives

    def export(self, base: str, to: Path | BinaryIO, *, memos: bool = True) -> ExportResult:
        """Write a base with its documents and settings to a file; with `memos`, also the paid answers."""
        done = self._archives.export(self._authorization.find_base(base, Scope.ADMIN), to, memos=memos)
        return ExportResult(bytes=done.bytes)

    def restore(self, archive: Path | BinaryIO, *, name: str | None = None) -> RestoredBase:
        """Create a base from an archive. Its documents are indexed again, with the paid answers of the archive."""
        self._authorization.require_all_bases(Scope.ADMIN)
        return self._archives.restore(
            archive, name=name, options=RestoreOptions(requester=self._authorization.requester)
        )
