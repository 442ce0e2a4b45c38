"""Pauses, quotas and results of bulk requests.

A pause prevents new claims and nothing else: requests are accepted, running work continues, deletes run. It is a row in
the database, so all workers obey it, also after a restart.
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
    from holdfast.engine.slot import JobId

WHOLE_QUEUE = ""  # in place of a base name, which is never empty
BULK = "bulk"  # kind of a slot that only makes requests for other owners, so a pause does not hold it back
DAY = micros(timedelta(days=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """The latest pause of a base or of the whole queue, active or resumed."""

    base: str  # or WHOLE_QUEUE
    since: Moment
    stop: bool  # also stop running work
    requester: str
    resumed_at: Moment | None = None

    @property
    def active(self) -> bool:
        return self.resumed_at is None


class Pauses:
    """All pauses, from one read. Both its own pause and that of the whole queue hold a base back."""

    def __init__(self, pauses: Iterable[Pause]) -> None:
        self._pauses = {pause.base: pause for pause in pauses}

    def active_pause(self, base: str) -> Pause | None:
        """Return the pause that holds this base back. The pause of the whole queue comes first."""
        return next((pause for pause in self._pauses_of(base) if pause.active), None)

    def last_resumed(self, base: str) -> Moment:
        """Return when the latest pause of this base ended, 0 if there was none."""
        return max((pause.resumed_at or Moment(0) for pause in self._pauses_of(base)), default=Moment(0))

    def _pauses_of(self, base: str) -> list[Pause]:
        return [self._pauses[name] for name in (WHOLE_QUEUE, base) if name in self._pauses]


NO_PAUSES = Pauses(())


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """How many build jobs a base may start per day (UTC), and how many it has started."""

    base: str
    per_day: int
    day: Moment  # start of the day that `used` counts
    used: int

    def remaining(self, now: Moment) -> int:
        return max(0, self.per_day - self.as_of(now).used)

    def as_of(self, now: Moment) -> Quota:
        """Return the quota of today. If the clock was set back, the count of the later day remains."""
        today = Moment(now - now % DAY)
        return self if self.day >= today else Quota(base=self.base, per_day=self.per_day, day=today, used=0)

    def resets_at(self, now: Moment) -> Moment:
        return Moment(self.as_of(now).day + DAY)


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkResult:
    """Result of a request for many owners: how many matched, and the results by verdict and reason."""

    found: int
    answers: Mapping[tuple[Verdict, str], int] = field(default_factory=dict)
    job: JobId | None = None  # does the work later; then there are no answers yet

    @property
    def accepted(self) -> int:
        return self.count(Verdict.ACCEPTED)

    def count(self, verdict: Verdict) -> int:
        """Count the results with this verdict."""
        return sum(number for (given, _), number in self.answers.items() if given is verdict)


def summarize(answers: Iterable[AdmissionResult]) -> BulkResult:
    """Count results by verdict and reason."""
    counted = Counter((answer.verdict, answer.reason) for answer in answers)
    return BulkResult(found=counted.total(), answers=dict(counted))
