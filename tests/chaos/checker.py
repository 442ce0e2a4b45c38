"""Judges a run: what clients were told, against what the stores contain. Nothing here imports the product.

An operation without an answer may have taken effect at any time after it began, or never. So each check asks whether
any order of the operations explains what was seen, and reports what no order explains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.chaos.check_documents import check_documents
from tests.chaos.check_events import check_events, check_messages
from tests.chaos.check_jobs import check_identical_requests, check_jobs
from tests.chaos.check_paid import check_paid
from tests.chaos.check_reads import check_reads
from tests.chaos.check_stores import check_stores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.chaos.history import Record
    from tests.chaos.violations import Violation

CHECKS: tuple[Callable[[Record], Iterator[Violation]], ...] = (
    check_documents,
    check_reads,
    check_jobs,
    check_identical_requests,
    check_events,
    check_messages,
    check_paid,
    check_stores,
)


def check(record: Record) -> list[Violation]:
    """Return everything that the product must not do and did."""
    return [violation for one in CHECKS for violation in one(record)]
