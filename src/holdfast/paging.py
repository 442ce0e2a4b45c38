"""Pages and batches of long lists."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")

MAX_COUNT = 10_000  # a list counts no further: a base may have millions of documents


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """One page of a list. Pass `next_cursor` to get the next page.

    `total` counts the whole list, if the operation counts. If `total_is_exact` is false, there are at least so many.
    """

    items: list[T]
    next_cursor: str | None = None
    total: int | None = None
    total_is_exact: bool = True


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


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Split items into consecutive lists of at most `size`. No items yield no list.

        list(batched("abc", 2)) == [["a", "b"], ["c"]]

    `itertools.batched` needs Python 3.12.
    """
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch
