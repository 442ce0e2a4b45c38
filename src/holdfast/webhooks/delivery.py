"""The value type of a delivery, as it is stored and shown."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 - schemas are made from the annotations


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One event for one webhook."""

    id: int
    webhook: int
    event: str  # the id of the event
    message: str  # the header webhook-id
    type: str
    state: str
    attempts: int
    status: int | None  # HTTP status of the last attempt; None: no answer
    reason: str | None  # why the last attempt failed
    created_at: datetime
    tried_at: datetime | None
    next_at: datetime | None
    ended_at: datetime | None
