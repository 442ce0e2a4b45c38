"""Findings of the doctor as data: a code, a place, a count, a few examples, and a sentence with what to do."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.engine.store import LARGEST_BATCH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.db import Database

MAX_EXAMPLES = 5

FINDING_MESSAGES = {
    "build_left": "{count} lists of chunks are served by nobody and wait for the sweep, which runs with the workers.",
    "list_left": "{count} entries of lists belong to no build. Fix removes them.",
    "chunk_left": "{count} chunks are in no list and wait for the sweep, which runs with the workers.",
    "missing_left": "{count} notes of missing chunks belong to slots that are gone. Fix removes them.",
    "use_left": "{count} paid answers are used by chunks that are gone. Fix ends these uses.",
    "memo_left": "{count} paid answers are used by nothing. Fix removes them.",
    "delete_unasked": "The clean-up of {count} deleted items was not asked for, as after a crash. Fix asks for it.",
    "delete_unfinished": "{count} deleted items are cleaned up but for their rows, which wait for the sweep.",
    "slots_left": "{count} documents are gone and still have slots. Fix deletes what is left of them.",
    "not_asked": "{count} documents have content and were never indexed, though {where} indexes at once. Fix asks.",
    "index_away": "{where} does not answer and was not looked through. See that its store runs; the log has the error.",
    "row_left": "{count} rows in {where} belong to chunks that are gone. Fix drops them.",
    "list_lacks": "The served lists of {count} documents are not whole, so they are not found. Fix builds them again.",
    "row_lacks": "{count} chunks are served without a row in {where}, and not found there. Fix asks for these again.",
    "file_left": "{count} files belong to no document, and no upload is writing them. Fix removes them.",
    "file_unfinished": "{count} files were begun and not finished, and no upload is writing them. Fix removes them.",
    "file_stray": "{count} files or folders were put among the files of documents by somebody else. They are not used; "
    "move or delete them.",
    "file_lacks": "The files of {count} documents are not there. Add these documents again, or restore the files.",
    "file_damaged": "The files of {count} documents are not what was added. Add them again, or restore the files.",
    "status_differs": "{count} documents show another status than their slots have. Fix writes the right one.",
    "standing_differs": "{count} items are listed otherwise than they stand. Fix lists them rightly.",
    "job_differs": "{count} jobs count other slots than they have, and would never end, or twice. Fix counts again.",
    "nobody_works": "{count} jobs wait, and nobody takes them. Start a worker with `holdfast serve`.",
    "not_overwritten": "{count} deleted documents have not been overwritten on the disk for over an hour. Fix tries it "
    "now; an open read transaction prevents it.",
    "not_compacted": "Copies of {count} deleted documents may have been in the database file for over a day. Choose a "
    "quiet time and run `holdfast doctor --erase`.",
}
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
                sentence=FINDING_MESSAGES[self._code].format(count=self._counts[where], where=where),
                examples=self._examples[where],
                fixable=self._code not in NOT_FIXABLE,
                fixed=self._fixed[where],
            )
            for where in sorted(self._counts)
        ]
