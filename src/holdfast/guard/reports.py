"""What a run reports about its job: counters, partial and final results, and spending."""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Any

from holdfast.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.db import Transaction
    from holdfast.engine import Ticket
    from holdfast.engine.store import SqlStore

log = logging.getLogger("holdfast")

WRITE_SECONDS = 1.0  # counters and partial results are written at most this often
MAX_JSON = 1 << 18  # bytes


class Report:
    """Collects what one run reports, and writes it in few statements."""

    def __init__(self, store: SqlStore, ticket: Ticket) -> None:
        self._store = store
        self._ticket = ticket
        self._counters: dict[str, Any] = {}
        self._unwritten: dict[str, str] = {}
        self._written_at = -WRITE_SECONDS

    def set_counters(self, counters: Mapping[str, float]) -> None:
        self._counters |= counters
        self._unwritten["counters"] = _to_json("counters", self._counters)
        self._write_if_due()

    def set_partial(self, value: Any) -> None:
        self._unwritten["partial"] = _to_json("partial result", value)
        self._write_if_due()

    def add_spending(self, tokens: int, price: float) -> None:
        self._store.add_spending(self._ticket.job, tokens=tokens, price=price)

    def set_result(self, value: Any) -> None:
        """Add the value of the run, if it is JSON of a reasonable size."""
        try:
            if value is not None:
                self._unwritten["result"] = _to_json("result", value)
        except BadRequest as error:
            log.info("result.not_stored job=%s reason=%s", self._ticket.job, error.code)

    def write_in(self, tx: Transaction) -> None:
        """Write the rest in a transaction, which may be repeated."""
        if self._unwritten:
            self._store.write_details_in(tx, self._ticket, **self._unwritten)

    def flush(self) -> None:
        """Write what was reported. The write of a late run changes nothing."""
        if self._unwritten:
            unwritten, self._unwritten = self._unwritten, {}
            self._store.write_details(self._ticket, **unwritten)
            self._written_at = time.monotonic()

    def _write_if_due(self) -> None:
        if time.monotonic() - self._written_at >= WRITE_SECONDS:
            self.flush()


def _to_json(what: str, value: Any) -> str:
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BadRequest("report_not_json", what=what, detail=error) from error
    if len(text) > MAX_JSON:
        raise BadRequest("report_too_large", what=what, size=len(text), most=MAX_JSON)
    return text
