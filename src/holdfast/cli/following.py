"""What is waited for: some documents, a folder with all below it, or a job; looked at again and again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from holdfast.cli.plain import worded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.front.door import Holdfast
    from holdfast.front.values import Progress, Standing

ACTIVE = frozenset({"queued", "indexing"})
TOGETHER = 1_000  # documents that are asked about at once
SHOWN = 8  # of those that are being indexed


@dataclass(frozen=True, slots=True, kw_only=True)
class Under:
    """Something that is worked on."""

    name: str
    status: str
    progress: Progress | None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """How it stands with what is waited for."""

    done: int
    total: int
    share: float  # of the whole, from 0 to 1
    active: Sequence[Under] = ()
    ended: Sequence[Standing] = ()  # since the last look
    waiting: int = 0  # not begun

    @property
    def over(self) -> bool:
        """There is nothing to wait for any more."""
        return self.done >= self.total


class Followed(Protocol):
    """What is waited for."""

    def look(self) -> Sight:
        """Tell how it stands."""
        ...

    def why(self) -> str:
        """Tell why nothing moves; empty where that is not known."""
        ...


@dataclass(slots=True)
class SomeDocuments:
    """Documents, until each has come to rest or is gone."""

    library: Holdfast
    base: str
    names: Mapping[int, str]
    standings: dict[int, Standing] = field(default_factory=dict)
    _left: list[int] = field(default_factory=list)
    _begun: bool = False

    def look(self) -> Sight:
        """Tell how they stand; those that ended are not asked about again."""
        if not self._begun:
            self._left, self._begun = list(self.names), True
        found: list[Standing] = []
        for first in range(0, len(self._left), TOGETHER):
            found += self.library.documents.statuses(self.base, self._left[first : first + TOGETHER])
        active = [one for one in found if one.status in ACTIVE]
        ended = [one for one in found if one.status not in ACTIVE]
        self.standings |= {one.id: one for one in found}
        self._left = [one.id for one in active]
        total = len(self.names)
        done = total - len(active)
        begun = [one for one in active if one.status == "indexing"]
        part = sum(one.progress.share or 0.0 for one in begun if one.progress is not None)
        return Sight(
            done=done,
            total=total,
            share=(done + part) / total if total else 1.0,
            active=[under(self.names[one.id], one) for one in begun],
            ended=ended,
            waiting=len(active) - len(begun),
        )

    def why(self) -> str:
        """Tell why the first of them waits."""
        return why_waiting(self.library, self.base, self._left[:1])


@dataclass(slots=True)
class WholeBase:
    """All that is indexed in a base, until nothing is; of a folder in it, until that one has come to rest."""

    library: Holdfast
    base: str
    folder: int | None = None
    standing: Standing | None = None  # of the folder
    _most: int = 0

    def look(self) -> Sight:
        """Tell how far the base is."""
        counted = self.library.bases.counts(self.base).by_status
        left = sum(many for status, many in counted.items() if status in ACTIVE)
        if self.folder is not None:
            found = self.library.documents.statuses(self.base, [self.folder])
            self.standing = found[0] if found else None
            left = max(left, 1) if self.standing is not None and self.standing.status in ACTIVE else 0
        self._most = max(self._most, left)
        busy = self.library.documents.list(self.base, states=["indexing"], size=SHOWN).items if left else []
        return Sight(
            done=self._most - left,
            total=self._most,
            share=(self._most - left) / self._most if self._most else 1.0,
            active=[under(one.name, one) for one in busy if one.progress is not None],
            waiting=max(0, left - len(busy)),
        )

    def why(self) -> str:
        """Tell why the first that waits does."""
        first = self.library.documents.list(self.base, states=["queued"], size=1).items
        return why_waiting(self.library, self.base, [one.id for one in first])


@dataclass(slots=True)
class OneJob:
    """A job that is about no document, such as a set of cards."""

    library: Holdfast
    job: str
    name: str
    state: str = "queued"

    def look(self) -> Sight:
        """Tell how far it is."""
        found = self.library.jobs.get(self.job)
        self.state = str(found.state)
        share = (found.progress.share or 0.0) if found.progress else 0.0
        busy = [Under(name=self.name, status=self.state, progress=found.progress)]
        return Sight(
            done=int(found.ended), total=1, share=1.0 if found.ended else share, active=[] if found.ended else busy
        )

    def why(self) -> str:
        """Tell why it waits."""
        return " ".join(one.message for one in self.library.jobs.get(self.job).waiting_for)


def under(name: str, one: Standing) -> Under:
    """Return how a document is worked on."""
    return Under(name=name, status=worded(one.status), progress=one.progress, why=one.why.message if one.why else "")


def why_waiting(library: Holdfast, base: str, documents: Sequence[int]) -> str:
    """Tell why a document waits, in sentences."""
    reasons = [why.message for one in documents for why in library.documents.get(base, one).waiting_for]
    return " ".join(dict.fromkeys(reasons))
