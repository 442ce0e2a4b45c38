"""Who asks, and what that one may do. Pure: keys say who somebody is, and here it is decided what follows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection


class Scope(StrEnum):
    """What a key is for; each allows what stands above it, too."""

    READ = "read"  # look, search, ask
    WRITE = "write"  # add, index, cancel, delete items
    ADMIN = "admin"  # bases and their settings, keys, webhooks


_ALLOWED = {
    Scope.READ: frozenset({Scope.READ}),
    Scope.WRITE: frozenset({Scope.READ, Scope.WRITE}),
    Scope.ADMIN: frozenset(Scope),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Somebody who asks; `bases` are ids, and `None` stands for all, also for those that do not exist yet."""

    key_id: int | None  # None: where no key is needed
    name: str
    scope: Scope
    bases: frozenset[int] | None

    def may(self, scope: Scope) -> bool:
        """Tell whether this caller may do what needs the scope."""
        return scope in _ALLOWED[self.scope]

    def sees(self, base: int | None) -> bool:
        """Tell whether a base exists for this caller; `None` is what belongs to no base, such as the whole queue."""
        return self.bases is None or base in self.bases

    def may_grant(self, bases: Collection[int] | None) -> bool:
        """Tell whether somebody limited to these bases could do no more than this caller: who may make such a key."""
        if self.bases is None:
            return True
        return bases is not None and self.bases.issuperset(bases)


# Whoever asks from this machine while there are no keys.
KEYLESS_CALLER = Caller(key_id=None, name="", scope=Scope.ADMIN, bases=None)
