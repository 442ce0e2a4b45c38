"""Shared by all tables: naming of constraints, the type of ids, partial indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Integer, MetaData, text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from enum import StrEnum

metadata = MetaData(
    naming_convention={
        "ix": "%(table_name)s_%(column_0_N_name)s",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
        "pk": "%(table_name)s_pkey",
    }
)

IdType = BigInteger().with_variant(Integer, "sqlite")


def make_in_condition(column: str, values: Iterable[StrEnum]) -> str:
    """Return `column IN (…)` with literal values, because a partial index needs literals."""
    return f"{column} IN ({', '.join(repr(str(value)) for value in sorted(values))})"


def partial_index(condition: str) -> dict[str, Any]:
    """Return the options that make an index partial on both databases."""
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}
