"""Callers and their rights. Pure: a key identifies a caller, and this module decides what the caller may do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    """What a key allows; each scope includes the ones before it."""

    READ = "read"  # list, search, ask
    WRITE = "write"  # add, index, cancel, delete items
    ADMIN = "admin"  # bases and their settings, keys, webhooks


_ALLOWED = {
    Scope.READ: frozenset({Scope.READ}),
    Scope.WRITE: frozenset({Scope.READ, Scope.WRITE}),
    Scope.ADMIN: frozenset(Scope),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The sender of a request. `bases` are ids; None means all bases, also future ones."""

    key_id: int | None  # None: no key is needed
    name: str
    scope: Scope
    bases: frozenset[int] | None

    def may(self, scope: Scope) -> bool:
        return scope in _ALLOWED[self.scope]

    def sees(self, base: int | None) -> bool:
        """Return whether the caller may see a base; None is for data of no base, such as the whole queue."""
        return self.bases is None or base in self.bases


# A caller on this machine while there are no keys.
KEYLESS_CALLER = Caller(key_id=None, name="", scope=Scope.ADMIN, bases=None)
