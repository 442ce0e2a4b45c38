"""Pages of long lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """Some of a list; `next_cursor` leads to those behind, and `total` counts all, where that was asked for."""

    items: list[T]
    next_cursor: str | None = None
    total: int | None = None


def read_all_pages(read: Callable[[str | None], Page[T]]) -> Iterator[T]:
    """Yield the items of all pages; `read` takes a cursor, None for the first page.

    for document in read_all_pages(lambda cursor: library.documents.list("handbook", cursor=cursor)): ...
    """
    cursor = None
    while True:
        page = read(cursor)
        yield from page.items
        cursor = page.next_cursor
        if cursor is None:
            return
