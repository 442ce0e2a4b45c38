"""Findings of the doctor as data: a code, a place, a count, a few examples, and a sentence with what to do."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from holdfast.engine.store import LARGEST_BATCH
from holdfast.messages import format_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.db import Database

MAX_EXAMPLES = 5

# Only a person can repair these.
NOT_FIXABLE = frozenset(
    {"file_stray", "file_lacks", "file_damaged", "files_away", "index_away", "nobody_works", "not_compacted"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """All issues of one kind in one place, with what to do."""

    code: str
    where: str
    count: int
    sentence: str
    examples: list[str]
    fixable: bool
    fixed: int  # how many of `count` were repaired, or requested to be built again
    params: dict[str, str] = field(default_factory=dict)  # the values in the sentence


class Place(NamedTuple):
    """Where an issue is: a base, an index of a base, or another part of the database or the disk."""

    name: str
    base: str = ""  # the name of the base
    kind: str = ""  # of the index


class Locator(Protocol):
    """Returns the place of a base, given its key, or of an index of the base."""

    def __call__(self, base: str, kind: str = "") -> Place: ...


class Issue(NamedTuple):
    """One thing that is wrong."""

    where: Place
    description: str  # becomes an example of the finding
    key: Any  # what the repair of the check needs


class Check(NamedTuple):
    """Finds one kind of issue.

    `scan` yields the issues of each batch it reads. `repair` repairs issues of one batch and one place, and returns
    how many it repaired. Checks that use the file store are left out when it does not answer.
    """

    code: str
    scan: Callable[[], Iterator[list[Issue]]]
    repair: Callable[[Sequence[Issue]], int] = lambda _: 0
    reads_files: bool = False
    removes_files: bool = False  # the repair does


def read_windows(database: Database, statement: Any, *after: str) -> Iterator[list[tuple[Any, ...]]]:
    """Yield all rows of a scan in batches, each read in its own transaction.

    `after` names the parameters of the position. The first columns of a row are its position.
    """
    position: dict[str, Any] = dict.fromkeys(after, -1)
    while True:
        with database.reading() as tx:
            rows = tx.run(statement, limit=LARGEST_BATCH, **position)
        if not rows:
            return
        yield rows
        position = dict(zip(after, rows[-1], strict=False))


class FindingCounter:
    """Counts the issues of one check by place."""

    def __init__(self, code: str) -> None:
        self._code = code
        self._counts: Counter[Place] = Counter()
        self._fixed: Counter[Place] = Counter()
        self._examples: defaultdict[Place, list[str]] = defaultdict(list)

    def add(self, where: Place, issues: Sequence[Issue], fixed: int) -> None:
        self._counts[where] += len(issues)
        self._fixed[where] += fixed
        examples = dict.fromkeys((*self._examples[where], *(issue.description for issue in issues)))
        self._examples[where] = list(examples)[:MAX_EXAMPLES]

    @property
    def findings(self) -> list[Finding]:
        """One finding for each place, in order of places."""
        return [self._make_finding(where) for where in sorted(self._counts)]

    def _make_finding(self, where: Place) -> Finding:
        params = {"count": str(self._counts[where]), "base": where.base, "kind": where.kind}
        return Finding(
            code=self._code,
            where=where.name,
            count=self._counts[where],
            sentence=format_message(f"finding.{self._code}", params),
            examples=self._examples[where],
            fixable=self._code not in NOT_FIXABLE,
            fixed=self._fixed[where],
            params={name: value for name, value in params.items() if value},
        )
