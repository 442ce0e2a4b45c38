"""Bases: create, change, clear, repair, delete."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from holdfast.auth import Scope
from holdfast.bases import ProviderTestResult
from holdfast.catalog import BaseSettings, BaseStatus, OnDuplicate
from holdfast.documents import DocumentCounts, Progress, progress_of
from holdfast.engine import Problem, describe_fault
from holdfast.errors import BadRequest, BadSettings, Forbidden
from holdfast.indexes import describe_not_enabled
from holdfast.service.validation import ValidatedOperations
from holdfast.wellformed import to_nfc

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.catalog import Base as StoredBase
    from holdfast.engine import Slot
    from holdfast.service.authorization import Authorization

ProbeResults = list[ProviderTestResult]


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A collection of documents that are searched together."""

    id: int
    name: str
    status: BaseStatus
    problem: Problem | None
    settings: BaseSettings
    not_enabled: dict[str, Problem]  # requested indexes that cannot run here, each with the reason
    rollout: Progress | None = None  # of a settings change that documents still follow; None: none


class LocalBases(ValidatedOperations):
    def __init__(self, authorization: Authorization) -> None:
        self._authorization = authorization
        self._bases = authorization.library.bases

    def create(self, name: str, **settings: Any) -> Base:
        """Create a base; settings that are not given have their defaults."""
        self._authorization.require_all_bases(Scope.ADMIN)
        return self._to_schema(self._bases.create(name, replace_settings(BaseSettings(), settings)))

    def list(self) -> list[Base]:
        """Return the bases that the caller may see, by name."""
        return [self._to_schema(base) for base in self._authorization.visible_bases()]

    def get(self, name: str) -> Base:
        """Return a base with its settings, the indexes it cannot have here, and the progress of a settings change."""
        return self._to_schema(self._authorization.find_base(name))

    def counts(self, name: str) -> DocumentCounts:
        """Count the documents of a base by status."""
        return self._authorization.library.document_queries.counts(self._authorization.find_base(name))

    def change(self, name: str, *, to: str | None = None, **settings: Any) -> Base:
        """Change settings of a base, and its name if `to` is given; either all changes are applied or none.

        Documents follow in the background. Until a document has followed, search uses its old index.
        """
        base = self._authorization.find_base(name, Scope.ADMIN)
        wanted = replace_settings(base.settings, settings)
        self._forbid_changes_beyond_base(base, wanted, to)
        changed = self._bases.change(base, wanted, name=to, requester=self._authorization.requester)
        return self._to_schema(changed.base)

    def rename(self, name: str, to: str) -> Base:
        """Rename a base."""
        base = self._authorization.find_base(name, Scope.ADMIN)
        self._forbid_changes_beyond_base(base, base.settings, to)
        return self._to_schema(self._bases.rename(base, to))

    def repair(self, name: str) -> Base:
        """Retry what made a base fail, and build what is missing."""
        base = self._authorization.find_base(name, Scope.ADMIN)
        return self._to_schema(self._bases.repair(base, requester=self._authorization.requester).base)

    def test_providers(self, name: str) -> ProbeResults:
        """Send a small request to each provider of a base and return the results; paid calls are on the ledger."""
        return self._authorization.library.provider_probe.run(self._authorization.find_base(name, Scope.ADMIN))

    def clear(self, name: str) -> None:
        """Delete all documents of a base; the name and the settings stay."""
        self._bases.clear(self._authorization.find_base(name, Scope.ADMIN), requester=self._authorization.requester)

    def delete(self, name: str) -> None:
        """Delete a base and everything in it. The name is free at once; the data is removed in the background."""
        self._bases.delete(self._authorization.find_base(name, Scope.ADMIN), requester=self._authorization.requester)

    def _forbid_changes_beyond_base(self, base: StoredBase, settings: BaseSettings, name: str | None) -> None:
        """Reject changes that affect other bases if the key is limited to some bases.

        A rename reveals which names exist, and bases of one tenant share paid answers.
        """
        if self._authorization.caller.bases is None:
            return
        if name is not None and to_nfc(name) != base.name:
            raise Forbidden(
                "Renaming a base needs a key for all bases, and yours is limited to some. Nothing was changed; ask "
                "somebody with such a key."
            )
        if settings.tenant != base.settings.tenant:
            raise Forbidden(
                "Changing the tenant of a base needs a key for all bases, and yours is limited to some. Nothing was "
                "changed; ask somebody with such a key."
            )

    def _to_schema(self, base: StoredBase) -> Base:
        rollout = self._bases.read_rollout_slot(base)
        return Base(
            id=base.id,
            name=base.name,
            status=base.status,
            problem=describe_fault(base.problem),
            settings=base.settings,
            not_enabled=describe_not_enabled(self._bases.not_enabled(base)),
            rollout=None if rollout is None or rollout.resting else _rollout_progress(rollout),
        )


def _rollout_progress(slot: Slot) -> Progress:
    """Return the progress of a settings change; before it starts, its stage is the state of the slot."""
    return progress_of(slot.progress) or Progress(stage=str(slot.state))


def replace_settings(settings: BaseSettings, changes: Mapping[str, Any]) -> BaseSettings:
    """Return the settings with some of them replaced; an unknown name raises `BadSettings`."""
    known = asdict(settings)
    unknown = sorted(changes.keys() - known.keys())
    if unknown:
        raise BadSettings(f"A base has no setting {unknown[0]!r}; it has {', '.join(known)}.")
    values = known | dict(changes)
    try:
        values["indexes"] = tuple(values["indexes"])
        values["languages"] = tuple(values["languages"])
        values["on_duplicate"] = OnDuplicate(values["on_duplicate"])
        return BaseSettings(**values)
    except (TypeError, ValueError) as error:
        raise BadRequest(f"These settings cannot be read: {error}.") from error
