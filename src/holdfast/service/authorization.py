"""One caller at one library: which bases he sees, and what he may do there.

A base that a caller may not see is answered exactly as one that does not exist.
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
        """Who is noted as having asked."""
        return self.caller.name

    def find_base(self, name: str, scope: Scope = Scope.READ) -> Base:
        """Find a base by its name, and see that the caller may do this much there."""
        base = self.library.bases.find(name)
        if not self.caller.sees(base.id):
            raise UnknownBase(name)
        self._require_scope(scope)
        return base

    def find_base_or_all(self, name: str | None) -> Base | None:
        """Find the base that is meant; None for all of them, which a key that is limited cannot mean."""
        if name is not None:
            return self.find_base(name)
        if self.caller.bases is None:
            self._require_scope(Scope.READ)
            return None
        seen = self.visible_bases()
        if len(seen) != 1:
            raise BadRequest("The key is limited to some bases; name the one that is meant.")
        return self.find_base(seen[0].name)

    def require_all_bases(self, scope: Scope) -> None:
        """See that the caller may do this much, whatever base it concerns."""
        if self.caller.bases is not None:
            raise Forbidden("This concerns all bases, and the key is limited to some; use a key for all of them.")
        self._require_scope(scope)

    def visible_bases(self) -> list[Base]:
        """Return the bases that the caller sees."""
        return [base for base in self.library.bases.list() if self.caller.sees(base.id)]

    def base_names(self) -> dict[str, str]:
        """Return the names of the bases that the caller sees, by what jobs and events call them."""
        return {base.key: base.name for base in self.visible_bases()}

    def find_job(self, job: str, scope: Scope = Scope.READ) -> tuple[Job, str]:
        """Find a job, with the name of its base."""
        found = self.library.store.job(job)
        name = self.base_names().get(found.base)
        if name is None:
            raise UnknownJob(job)
        self._require_scope(scope)
        return found, name

    def _require_scope(self, scope: Scope) -> None:
        if not self.caller.may(scope):
            raise Forbidden(f"This needs a key with the scope {scope!s}; yours has {self.caller.scope!s}.")
