"""The bases: made, set, emptied, repaired, deleted."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from holdfast.auth import Scope
from holdfast.documents import progress_of
from holdfast.engine import describe_fault
from holdfast.errors import BadRequest, BadSettings, Forbidden
from holdfast.indexes import describe_not_enabled
from holdfast.service.schemas import Base, BaseSettings, DocumentCounts, OnDuplicate, Progress, ProviderTestResult
from holdfast.service.validation import ValidatedOperations
from holdfast.wellformed import to_nfc

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.catalog import Base as Shelf
    from holdfast.engine import Slot
    from holdfast.service.authorization import Authorization

ProbeResults = list[ProviderTestResult]


class LocalBases(ValidatedOperations):
    """The bases of a database."""

    def __init__(self, authorization: Authorization) -> None:
        self._authorization = authorization
        self._bases = authorization.library.bases

    def create(self, name: str, **settings: Any) -> Base:
        """Make a base; what is not set is as usual."""
        self._authorization.require_all_bases(Scope.ADMIN)
        return self._to_schema(self._bases.create(name, replace_settings(BaseSettings(), settings)))

    def list(self) -> list[Base]:
        """Return all bases, by name."""
        return [self._to_schema(base) for base in self._authorization.visible_bases()]

    def get(self, name: str) -> Base:
        """Return a base."""
        return self._to_schema(self._authorization.find_base(name))

    def counts(self, name: str) -> DocumentCounts:
        """Count the documents of a base by their status."""
        return self._authorization.library.document_queries.counts(self._authorization.find_base(name))

    def change(self, name: str, *, to: str | None = None, **settings: Any) -> Base:
        """Change settings of a base, and its name where `to` is given; all of it or nothing.

        Its documents follow in the background while the old index serves.
        """
        base = self._authorization.find_base(name, Scope.ADMIN)
        wanted = replace_settings(base.settings, settings)
        self._forbid_changes_beyond_base(base, wanted, to)
        changed = self._bases.change(base, wanted, name=to, requester=self._authorization.requester)
        return self._to_schema(changed.base)

    def rename(self, name: str, to: str) -> Base:
        """Give a base another name."""
        base = self._authorization.find_base(name, Scope.ADMIN)
        self._forbid_changes_beyond_base(base, base.settings, to)
        return self._to_schema(self._bases.rename(base, to))

    def repair(self, name: str) -> Base:
        """Try again what made a base fail, and build what is missing."""
        base = self._authorization.find_base(name, Scope.ADMIN)
        return self._to_schema(self._bases.repair(base, requester=self._authorization.requester).base)

    def test_providers(self, name: str) -> ProbeResults:
        """Ask each provider of a base something harmless, and tell what came of it."""
        return self._authorization.library.provider_probe.run(self._authorization.find_base(name, Scope.ADMIN))

    def clear(self, name: str) -> None:
        """Delete all documents of a base; name and settings stay."""
        self._bases.clear(self._authorization.find_base(name, Scope.ADMIN), requester=self._authorization.requester)

    def delete(self, name: str) -> None:
        """Delete a base with all that is in it; its name is free at once."""
        self._bases.delete(self._authorization.find_base(name, Scope.ADMIN), requester=self._authorization.requester)

    def _forbid_changes_beyond_base(self, base: Shelf, settings: BaseSettings, name: str | None) -> None:
        """Refuse a key that is limited to some bases what concerns the others, whether or not they exist.

        Whether a name is free tells which bases there are; a tenant shares the paid answers of all its bases.
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

    def _to_schema(self, base: Shelf) -> Base:
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
    """Return how far a rollout is; one that has not begun shows its state as its stage."""
    return progress_of(slot.progress) or Progress(stage=str(slot.state))


def replace_settings(settings: BaseSettings, changes: Mapping[str, Any]) -> BaseSettings:
    """Return settings with some of them changed; a name that is none is refused."""
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
