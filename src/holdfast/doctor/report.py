"""Findings of the doctor as data: a code, a place, a count, a few examples, and a sentence with what to do."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.engine.store import LARGEST_BATCH
from holdfast.messages import format_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.db import Database

MAX_EXAMPLES = 5

# Only a person can repair these.
NOT_FIXABLE = frozenset({"file_stray", "file_lacks", "file_damaged", "index_away", "nobody_works", "not_compacted"})


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


class Issue(NamedTuple):
    """One thing that is wrong."""

    where: str
    description: str  # becomes an example of the finding
    key: Any  # what the repair of the check needs


class Check(NamedTuple):
    """Finds one kind of issue.

    `scan` yields the issues of each batch it reads. `repair` repairs issues of one batch and one place, and returns
    how many it repaired.
    """

    code: str
    scan: Callable[[], Iterator[list[Issue]]]
    repair: Callable[[Sequence[Issue]], int] = lambda _: 0


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
        self._counts: Counter[str] = Counter()
        self._fixed: Counter[str] = Counter()
        self._examples: defaultdict[str, list[str]] = defaultdict(list)

    def add(self, where: str, issues: Sequence[Issue], fixed: int) -> None:
        self._counts[where] += len(issues)
        self._fixed[where] += fixed
        examples = dict.fromkeys((*self._examples[where], *(issue.description for issue in issues)))
        self._examples[where] = list(examples)[:MAX_EXAMPLES]

    @property
    def findings(self) -> list[Finding]:
        """One finding for each place, in order of places."""
        return [
            Finding(
                code=self._code,
                where=where,
                count=self._counts[where],
                sentence=format_message(f"finding.{self._code}", {"count": self._counts[where], "where": where}),
                examples=self._examples[where],
                fixable=self._code not in NOT_FIXABLE,
                fixed=self._fixed[where],
            )
            for where in sorted(self._counts)
        ]
