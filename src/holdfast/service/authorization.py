"""Checks which bases a caller sees, and what the caller may do there.

For a caller, a base without permission and a base that does not exist give the same error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.auth import Scope
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
        """The name that is recorded as the requester."""
        return self.caller.name

    def find_base(self, name: str, scope: Scope = Scope.READ) -> Base:
        """Return a base by name; raise unless the caller has this scope there."""
        base = self.library.catalog.find_base(name)
        if not self.caller.sees(base.id):
            raise UnknownBase(name)
        self._require_scope(scope)
        return base

    def find_base_or_all(self, name: str | None) -> Base | None:
        """Return a base by name; None means all bases, and for a limited key its only base."""
        if name is not None:
            return self.find_base(name)
        if self.caller.bases is None:
            self._require_scope(Scope.READ)
            return None
        visible = self.visible_bases()
        if len(visible) != 1:
            raise BadRequest("The key is limited to some bases; name the one that is meant.")
        return self.find_base(visible[0].name)

    def require_all_bases(self, scope: Scope) -> None:
        """Raise unless the caller has this scope in all bases."""
        if self.caller.bases is not None:
            raise Forbidden("This concerns all bases, and the key is limited to some; use a key for all of them.")
        self._require_scope(scope)

    def visible_bases(self) -> list[Base]:
        return [base for base in self.library.catalog.bases() if self.caller.sees(base.id)]

    def base_names(self) -> dict[str, str]:
        """Return the names of the visible bases by the key that jobs and events use."""
        return {base.key: base.name for base in self.visible_bases()}

    def find_job(self, job: str, scope: Scope = Scope.READ) -> tuple[Job, str]:
        """Return a job and the name of its base."""
        stored = self.library.store.job(job)
        name = self.base_names().get(stored.base)
        if name is None:
            raise UnknownJob(job)
        self._require_scope(scope)
        return stored, name

    def _require_scope(self, scope: Scope) -> None:
        if not self.caller.may(scope):
            raise Forbidden(f"This needs a key with the scope {scope!s}; yours has {self.caller.scope!s}.")
