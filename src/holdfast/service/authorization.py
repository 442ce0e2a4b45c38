"""Checks which bases a caller sees, and what the caller may do there.

A base that the caller may not see gives the same error as a base that does not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.auth import Scope
from holdfast.bases import parse_removal
from holdfast.errors import BadRequest, Forbidden, UnknownBase, UnknownJob

if TYPE_CHECKING:
    from holdfast.auth import Caller
    from holdfast.catalog import Base
    from holdfast.engine.store import Job
    from holdfast.wiring import Library


class Authorization:
    """Checks what a caller may do in a base."""

    def __init__(self, library: Library, caller: Caller) -> None:
        self.library = library
        self.caller = caller

    @property
    def requester(self) -> str:
        """The name that jobs and events record as the requester."""
        return self.caller.name

    def find_base(self, name: str, scope: Scope = Scope.READ) -> Base:
        """Return a base by name. Raise if the caller cannot see it or does not have this scope."""
        base = self.library.catalog.find_base(name)
        if not self.caller.sees(base.id):
            raise UnknownBase(name)
        self._require_scope(scope)
        return base

    def find_base_or_all(self, name: str | None) -> Base | None:
        """Return a base by name. Without a name, return None for all bases, or the only base of a limited key."""
        if name is not None:
            return self.find_base(name)
        if self.caller.bases is None:
            self._require_scope(Scope.READ)
            return None
        visible = self.visible_bases()
        if len(visible) != 1:
            raise BadRequest("base_not_named")
        return self.find_base(visible[0].name)

    def require_all_bases(self, scope: Scope) -> None:
        """Raise unless the caller has this scope in all bases."""
        if self.caller.bases is not None:
            raise Forbidden("all_bases_required")
        self._require_scope(scope)

    def visible_bases(self) -> list[Base]:
        return [base for base in self.library.catalog.bases() if self.caller.sees(base.id)]

    def base_names(self) -> dict[str, str]:
        """Return the names of the visible bases, by the base key of jobs and events."""
        return {base.key: base.name for base in self.visible_bases()}

    def find_job(self, job: str, scope: Scope = Scope.READ) -> tuple[Job, str]:
        """Return a job and the name of its base; the name is empty for the job that removes a base."""
        stored = self.library.store.job(job)
        name = self.base_names().get(stored.base)
        if name is None and (parse_removal(stored) is None or not self.caller.sees(int(stored.base))):
            raise UnknownJob(job)
        self._require_scope(scope)
        return stored, name or ""

    def _require_scope(self, scope: Scope) -> None:
        if not self.caller.may(scope):
            raise Forbidden("scope_required", scope=scope, given=self.caller.scope)
