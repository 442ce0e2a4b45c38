"""Pages and batches of long lists."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """One page of a list. Pass `next_cursor` to get the next page. `total` counts the whole list, if requested."""

    items: list[T]
    next_cursor: str | None = None
    total: int | None = None


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Split items into consecutive lists of at most `size`. No items yield no list.

        list(batched("abc", 2)) == [["a", "b"], ["c"]]

    `itertools.batched` needs Python 3.12.
    """
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch
