"""The scope and the bases of a key decide what its caller may do and see."""

from __future__ import annotations

import pytest

from holdfast.auth.principal import KEYLESS_CALLER, Caller, Scope

READ, WRITE, ADMIN = Scope.READ, Scope.WRITE, Scope.ADMIN


def caller(scope: Scope = READ, bases: frozenset[int] | None = None) -> Caller:
    return Caller(key_id=1, name="somebody", scope=scope, bases=bases)


@pytest.mark.parametrize(("has", "allowed"), [(READ, {READ}), (WRITE, {READ, WRITE}), (ADMIN, {READ, WRITE, ADMIN})])
def test_a_scope_includes_all_lower_scopes(has: Scope, allowed: set[Scope]) -> None:
    assert {scope for scope in Scope if caller(has).may(scope)} == allowed


@pytest.mark.parametrize(
    ("bases", "base", "seen"),
    [
        (None, 1, True),
        (None, 999, True),
        (None, None, True),
        (frozenset({1, 2}), 1, True),
        (frozenset({1, 2}), 3, False),
        (frozenset({1, 2}), None, False),
        (frozenset(), 1, False),
        (frozenset(), None, False),
    ],
)
def test_a_caller_sees_only_the_bases_of_its_key(bases: frozenset[int] | None, base: int | None, seen: bool) -> None:
    assert caller(ADMIN, bases).sees(base) is seen


def test_without_keys_every_caller_may_do_everything() -> None:
    assert all(KEYLESS_CALLER.may(scope) for scope in Scope)
    assert KEYLESS_CALLER.sees(7)
    assert KEYLESS_CALLER.key_id is None
