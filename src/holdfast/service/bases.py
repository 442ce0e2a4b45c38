"""Bases: create, change, clear, repair, delete."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from holdfast.auth import Scope
from holdfast.bases import ProviderTestResult
from holdfast.catalog import BaseSettings, BaseStatus, OnDuplicate
from holdfast.documents import DocumentCounts, Progress, progress_of
from holdfast.engine import Problem, describe_fault
from holdfast.errors import BadRequest, BadSettings, Forbidden
from holdfast.indexes import describe_not_enabled
from holdfast.service.messages import BulkSummary, Reply, make_job_reply, merge_summaries
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
    not_enabled: dict[str, Problem]  # indexes in the settings that cannot run here, with the reason
    rollout: Progress | None = None  # progress of a settings change that is still being applied to documents
    rollout_job: str | None = None  # the job that applies it; a cancel stops it


class LocalBases(ValidatedOperations):
    def __init__(self, authorization: Authorization) -> None:
        self._authorization = authorization
        self._bases = authorization.library.bases

    def create(self, name: str, **settings: Any) -> Base:
        """Create a base. Settings that are left out get their defaults."""
        self._authorization.require_all_bases(Scope.ADMIN)
        return self._to_schema(self._bases.create(name, replace_settings(BaseSettings(), settings)))

    def list(self) -> list[Base]:
        """Return the bases that the caller may see, sorted by name."""
        return [self._to_schema(base) for base in self._authorization.visible_bases()]

    def get(self, name: str) -> Base:
        """Return a base: its settings, the indexes that cannot run here, and the progress of a settings change."""
        return self._to_schema(self._authorization.find_base(name))

    def counts(self, name: str, *, exact: bool = False) -> DocumentCounts:
        """Count the documents of a base by status.

        At most 10,000 documents of each status are counted, and `more` names the statuses that have at least as many.
        With `exact` all are counted, which takes a fraction of a second for a million documents.
        """
        return self._authorization.library.document_queries.counts(self._authorization.find_base(name), exact=exact)

    def change(self, name: str, *, to: str | None = None, **settings: Any) -> Base:
        """Change settings of a base, and its name if `to` is given. Either all changes are applied or none.

        A job updates the documents in the background. Until a document is updated, search uses its old index. If the
        job is cancelled, updated documents stay updated, and the others keep their old index.
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
        """Test the providers of a failed base. If they work, open the base and build what failed or is missing."""
        base = self._authorization.find_base(name, Scope.ADMIN)
        return self._to_schema(self._bases.repair(base, requester=self._authorization.requester).base)

    def test_providers(self, name: str) -> ProbeResults:
        """Send a small request to each provider of a base and return the results. The ledger records paid calls."""
        return self._authorization.library.provider_probe.run(self._authorization.find_base(name, Scope.ADMIN))

    def clear(self, name: str) -> BulkSummary:
        """Delete all documents of a base. The name and the settings stay.

        Up to 250 documents are deleted at once. More documents become a job, which the summary names. The job can be
        cancelled; documents that it has not deleted yet stay.
        """
        base = self._authorization.find_base(name, Scope.ADMIN)
        return merge_summaries(self._bases.clear(base, requester=self._authorization.requester), dry_run=False)

    def delete(self, name: str) -> Reply:
        """Delete a base and its documents. The name is free at once; the job in the reply removes the data.

        The job reports its progress. It cannot be cancelled.
        """
        base = self._authorization.find_base(name, Scope.ADMIN)
        result = self._bases.delete(base, requester=self._authorization.requester)
        return replace(make_job_reply(result), name=base.name)

    def _forbid_changes_beyond_base(self, base: StoredBase, settings: BaseSettings, name: str | None) -> None:
        """Reject changes that affect other bases if the key is limited to some bases.

        A rename reveals which names exist, and bases of one tenant share paid answers.
        """
        if self._authorization.caller.bases is None:
            return
        if name is not None and to_nfc(name) != base.name:
            raise Forbidden("rename_needs_all_bases", base=base.name)
        if settings.tenant != base.settings.tenant:
            raise Forbidden("tenant_needs_all_bases", base=base.name)

    def _to_schema(self, base: StoredBase) -> Base:
        rollout = self._bases.read_rollout_slot(base)
        if rollout is not None and rollout.resting:
            rollout = None
        return Base(
            id=base.id,
            name=base.name,
            status=base.status,
            problem=describe_fault(base.problem),
            settings=base.settings,
            not_enabled=describe_not_enabled(self._bases.not_enabled(base)),
            rollout=None if rollout is None else _rollout_progress(rollout),
            rollout_job=None if rollout is None else rollout.job,
        )


def _rollout_progress(slot: Slot) -> Progress:
    """Return the progress of a settings change; before it starts, its stage is the state of the slot."""
    return progress_of(slot.progress) or Progress(stage=str(slot.state))


def replace_settings(settings: BaseSettings, changes: Mapping[str, Any]) -> BaseSettings:
    """Return the settings with these changes. Raise `BadSettings` for an unknown name."""
    known = asdict(settings)
    unknown = sorted(changes.keys() - known.keys())
    if unknown:
        raise BadSettings("unknown_base_setting", name=unknown[0], known=", ".join(known))
    values = known | dict(changes)
    try:
        values["indexes"] = tuple(values["indexes"])
        values["languages"] = tuple(values["languages"])
        values["on_duplicate"] = OnDuplicate(values["on_duplicate"])
        return BaseSettings(**values)
    except (TypeError, ValueError) as error:
        raise BadRequest("base_settings_not_valid", detail=error) from error
