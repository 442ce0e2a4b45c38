"""What may be shown: the check that every hit passes, whichever index or cache it comes from.

An index proposes chunks; here, in one snapshot, it is read which of them belong to a live document of the asked base,
whose slot serves the recipe that proposed them, and stand in the list that is served and not among what it lacks.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from holdfast.library import statements as sql
from holdfast.library.builds import Passage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.stores.database import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A chunk that may be shown, as its slot serves it."""

    document: int
    name: str  # what people call the document
    title: str | None
    generation: int
    passage: Passage


class Confirmed(NamedTuple):
    """Whose a chunk is, and in which generation and list it may be shown."""

    document: int
    generation: int
    build: int  # the list; slots of different generations may serve the same one


def confirmed(tx: Transaction, base: str, kind: str, recipe: int, chunks: Sequence[int]) -> dict[int, Confirmed]:
    """Return those of the proposed chunks that may be shown, and nothing of what they say."""
    rows = tx.run(sql.CONFIRMED, [[chunk] for chunk in chunks], base=base, kind=kind, recipe=recipe)
    return {id_: Confirmed(int(owner), built, build) for id_, owner, built, build in rows}


def served(tx: Transaction, base: str, kind: str, recipe: int, chunks: Sequence[int]) -> dict[int, Served]:
    """Return those of the proposed chunks that may be shown, as they are shown."""
    rows = tx.run(sql.SERVED_PASSAGES, [[chunk] for chunk in chunks], base=base, kind=kind, recipe=recipe)
    found = {}
    for id_, owner, built, ordinal, start, body, stop, headings, text, name, title in rows:
        passage = Passage(id_, ordinal, start, body, stop, tuple(json.loads(headings)), text)
        found[id_] = Served(document=int(owner), name=name, title=title, generation=built, passage=passage)
    return found


def served_recipes(tx: Transaction, base: str, kind: str) -> list[int]:
    """Name the recipes of an index that some document is served by, newest first; each needs a query of its own."""
    return [recipe for (recipe,) in tx.run(sql.SERVED_RECIPES, base=base, kind=kind)]
