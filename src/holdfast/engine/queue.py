"""The queue as people control it: what is paused, what a base may start in a day, what came of asking for many.

A pause holds back what is not claimed yet, and nothing else: admission accepts, running work goes on, deletes are
done. It is a row of the database, so every worker of every scheduler keeps it, before and after a restart.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.clock import Moment, micros
from holdfast.engine.admission import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.engine.admission import AdmissionResult

WHOLE_QUEUE = ""  # in the place of a base: the whole queue; no base has an empty name
DAY = micros(timedelta(days=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """The last pause of a base, or of the whole queue, whether it still holds or not."""

    base: str  # or EVERYTHING
    since: Moment
    stop: bool  # what runs is given back, too
    requester: str
    resumed_at: Moment | None = None

    @property
    def active(self) -> bool:
        """Nobody has resumed it yet."""
        return self.resumed_at is None


class Pauses:
    """All pauses of one reading; a base is held back by its own and by that of the whole queue."""

    def __init__(self, pauses: Iterable[Pause]) -> None:
        self._pauses = {pause.base: pause for pause in pauses}

    def active_pause(self, base: str) -> Pause | None:
        """Return the pause that holds this base back; the one of the whole queue counts first."""
        return next((pause for pause in self._pauses_of(base) if pause.active), None)

    def last_resumed(self, base: str) -> Moment:
        """Return since when nothing holds this base back; zero if nothing ever did."""
        return max((pause.resumed_at or Moment(0) for pause in self._pauses_of(base)), default=Moment(0))

    def _pauses_of(self, base: str) -> list[Pause]:
        return [self._pauses[name] for name in (WHOLE_QUEUE, base) if name in self._pauses]


NO_PAUSES = Pauses(())


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """How many build jobs a base may start in a day, from midnight to midnight UTC, and how many it has."""

    base: str
    per_day: int
    day: Moment  # the midnight since which `used` was counted
    used: int

    def remaining(self, now: Moment) -> int:
        """Return how many more may be accepted today."""
        return max(0, self.per_day - self.as_of(now).used)

    def as_of(self, now: Moment) -> Quota:
        """Return the quota as it stands today; a clock that was set back does not give a day twice."""
        today = Moment(now - now % DAY)
        return self if self.day >= today else Quota(base=self.base, per_day=self.per_day, day=today, used=0)

    def resets_at(self, now: Moment) -> Moment:
        """Return when the next day begins."""
        return Moment(self.as_of(now).day + DAY)


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkResult:
    """What came of asking for many: how many were found, and the answers by verdict and reason."""

    found: int
    answers: Mapping[tuple[Verdict, str], int] = field(default_factory=dict)

    @property
    def accepted(self) -> int:
        """How many were accepted."""
        return self.count(Verdict.ACCEPTED)

    def count(self, verdict: Verdict) -> int:
        """Count the answers of one kind, whatever their reasons."""
        return sum(number for (one, _), number in self.answers.items() if one is verdict)


def summarize(answers: Iterable[AdmissionResult]) -> BulkResult:
    """Sum answers up."""
    counted = Counter((answer.verdict, answer.reason) for answer in answers)
    return BulkResult(found=counted.total(), answers=dict(counted))
