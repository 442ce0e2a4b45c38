"""The texts of documents. A mark in each paragraph names the document and the version that the paragraph belongs to.

So a chunk, a hit or a row in any table tells which version of which document it comes from, without the product.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

MARK = re.compile(r"zq([a-z]+\d+)k(\d+)v(\d+)x(\d+)p(\d+)")
PARAGRAPHS = 4
STABLE_FOR = 4  # so many versions in a row share the first paragraph
FILLER = (
    "The tide of the northern harbour rises for six hours and falls again, while the keeper of the lighthouse writes "
    "the depth of the water, the wind and the names of the ships into a book that nobody else reads."
)


class Mark(NamedTuple):
    """The owner of a document, its number, and the versions that contain a paragraph."""

    client: str
    number: int
    first: int
    last: int
    place: int

    def __str__(self) -> str:
        return f"zq{self.client}k{self.number}v{self.first}x{self.last}p{self.place}"

    @property
    def key(self) -> str:
        return f"{self.client}k{self.number}"


def find_marks(text: str) -> list[Mark]:
    """Return the marks in a text, in order."""
    return [Mark(found[1], *(int(found[place]) for place in range(2, 6))) for found in MARK.finditer(text)]


def marks_of(key: str, version: int) -> list[Mark]:
    """Return the marks of a version of a document, in order. The first paragraph changes only now and then."""
    client, _, number = key.rpartition("k")
    first = version // STABLE_FOR * STABLE_FOR
    stable = Mark(client, int(number), first, first + STABLE_FOR - 1, 0)
    own = [Mark(client, int(number), version, version, place) for place in range(1, PARAGRAPHS)]
    return [stable, *own]


def text_of(key: str, version: int) -> str:
    """Return the text of a version: one paragraph for each mark, each long enough for a chunk of its own."""
    paragraphs = [f"{mark} {FILLER} It ends with {mark.key} {mark.place}." for mark in marks_of(key, version)]
    return "\n\n".join([f"# Log {key}", *paragraphs]) + "\n"


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
