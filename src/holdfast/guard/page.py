"""A read-only page of the works of a guard, as an ASGI app without dependencies.

app.mount("/guard", guard.page())  # FastAPI or Starlette; protect it as your other pages for operators
"""

from __future__ import annotations

from html import escape
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode

from holdfast.guard.overview import list_jobs, list_refusals, summarise_works
from holdfast.guard.spending import SpendingGroup, list_quotas, sum_spending, total_spending

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence

    from holdfast.guard.guard import Guard
    from holdfast.guard.overview import JobLine, WorkSummary
    from holdfast.guard.spending import QuotaLine, SpendingTotal

    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

REFRESH_SECONDS = 10
LINES = 50
DAYS = 30  # of spending
HEADERS = {
    "content-type": "text/html; charset=utf-8",
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { margin: 2rem auto; max-width: 76rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid #8884; padding: .35rem .75rem .35rem 0; text-align: left; white-space: nowrap; }
th { font-weight: 600; } .number { text-align: right; font-variant-numeric: tabular-nums; }
td { max-width: 18rem; overflow: hidden; text-overflow: ellipsis; }
.failed { color: #c62828; } .running { color: #1565c0; } .succeeded { color: #2e7d32; }
@media (prefers-color-scheme: dark) {
  .failed { color: #ef9a9a; } .running { color: #90caf9; } .succeeded { color: #a5d6a7; }
}
"""


class GuardPage:
    """Serves one page: works, newest jobs and refused requests, quotas and spending, of all works or of one."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _answer_lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        if scope["method"] not in ("GET", "HEAD"):
            await _send(send, HTTPStatus.METHOD_NOT_ALLOWED, b"", {"allow": "GET, HEAD"})
            return
        query = parse_qs(scope.get("query_string", b"").decode(errors="replace"))
        work = query.get("work", [None])[0]
        by = query.get("by", [SpendingGroup.DAY])[0]
        if (work is not None and work not in self._guard.works) or by not in list(SpendingGroup):
            await _send(send, HTTPStatus.NOT_FOUND, b"", {})
            return
        body = await self._guard.in_thread(self._render, work, SpendingGroup(by))
        await _send(send, HTTPStatus.OK, b"" if scope["method"] == "HEAD" else body, {})

    def _render(self, work: str | None, by: SpendingGroup) -> bytes:
        guard = self._guard
        works = [one for one in summarise_works(guard) if work in (None, one.work)]
        refusals = [
            (one.at, one.work, one.key, one.reason, one.requester, f"{one.cost:.2f}")
            for one in list_refusals(guard, work, limit=LINES)
        ]
        spending = [one for one in sum_spending(guard, DAYS) if work in (None, one.work)]
        title = "Guard" if work is None else f"Guard: {work}"
        parts = [
            "<!doctype html><html lang=en><meta charset=utf-8>",
            "<meta name=viewport content='width=device-width'>",
            f"<meta http-equiv=refresh content={REFRESH_SECONDS}>",
            f"<title>{escape(title)}</title><style>{STYLE}</style><h1>{escape(title)}</h1>",
            "" if work is None else "<p><a href='?'>All works</a></p>",
            _works_table(works),
            "<h2>Jobs</h2>",
            _jobs_table(list_jobs(guard, work, limit=LINES)),
            "<h2>Requests that started no work</h2>",
            _table(("at", "work", "key", "reason", "requester", "cost"), map(_cells, refusals)),
            "<h2>Quotas per day (UTC)</h2>",
            _quotas_table(list_quotas(guard, work)),
            f"<h2>Spending of the last {DAYS} days</h2>",
            f"<p>By {', '.join(_link(one, work, one is by) for one in SpendingGroup)}.</p>",
            _spending_table(total_spending(spending, by)[:LINES], by),
        ]
        return "".join(parts).encode()


def _works_table(works: Sequence[WorkSummary]) -> str:
    names = ("work", "queued", "running", "succeeded (24 h)", "failed (24 h)", "refused", "cost avoided")
    rows = (
        f"<td><a href='?{escape(urlencode({'work': one.work}))}'>{escape(one.work)}</a>{' (paused)' * one.paused}</td>"
        + "".join(
            f"<td class=number>{number:,}</td>"
            for number in (one.queued, one.running, one.succeeded, one.failed, one.refused)
        )
        + f"<td class=number>{one.saved:,.2f}</td>"
        for one in works
    )
    return _table(names, rows, numbers=range(1, len(names)))


def _jobs_table(jobs: Sequence[JobLine]) -> str:
    names = ("state", "key", "work", "done", "requester", "requested", "ended", "error", "job")
    rows = (
        f"<td class={one.state}>{one.state}</td>"
        f"<td class=key title='{escape(one.key)}'>{escape(one.key)}</td>"
        + _cells((one.work, f"{one.done:,}/{one.total:,}" if one.total else "", one.requester, one.created_at))
        + _cells((one.finished_at or "", one.error or "", one.job))
        for one in jobs
    )
    return _table(names, rows)


def _quotas_table(quotas: Sequence[QuotaLine]) -> str:
    rows = (
        _cells((one.work, one.scope, one.unit, one.used_by))
        + f"<td class='number{' failed' * (one.used >= one.per_day)}'>{one.used:,.10g}</td>"
        + f"<td class=number>{one.per_day:,.10g}</td>"
        for one in quotas
    )
    return _table(("work", "for each", "unit", "most used by", "used today", "limit"), rows, numbers=(4, 5))


def _spending_table(totals: Sequence[SpendingTotal], by: SpendingGroup) -> str:
    rows = (
        _cells((one.name or "(none)",))
        + "".join(f"<td class=number>{number:,}</td>" for number in (one.jobs, one.tokens))
        + f"<td class=number>{one.price:,.2f}</td>"
        for one in totals
    )
    return _table((by, "jobs", "tokens", "price"), rows, numbers=(1, 2, 3))


def _link(by: SpendingGroup, work: str | None, chosen: bool) -> str:
    """Return a link to the same page with another grouping."""
    if chosen:
        return f"<b>{by}</b>"
    query = {"by": str(by)} | ({} if work is None else {"work": work})
    return f"<a href='?{escape(urlencode(query))}'>{by}</a>"


def _cells(values: Iterable[object]) -> str:
    return "".join(f"<td>{escape(str(value))}</td>" for value in values)


def _table(names: Sequence[str], rows: Iterable[str], numbers: Iterable[int] = ()) -> str:
    right = set(numbers)
    head = "".join(f"<th{' class=number' if place in right else ''}>{name}</th>" for place, name in enumerate(names))
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    if not body:
        return "<p>None.</p>"
    return f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


async def _send(send: Send, status: HTTPStatus, body: bytes, more: dict[str, str]) -> None:
    headers = [(name.encode(), value.encode()) for name, value in (HEADERS | more).items()]
    await send({"type": "http.response.start", "status": int(status), "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _answer_lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
