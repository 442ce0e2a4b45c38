"""Pages of long lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """Some of a list; `next_cursor` leads to those behind, and `total` counts all, where that was asked for."""

    items: list[T]
    next_cursor: str | None = None
    total: int | None = None
