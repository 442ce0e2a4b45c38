"""Draws what happened to one document: its operations, the faults and its events, as an HTML page."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING, NamedTuple

from tests.chaos.history import NEVER

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.chaos.history import Record
    from tests.chaos.violations import Violation

PAGE = """<!doctype html><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 14px sans-serif; margin: 2em; }} li {{ color: #a00; }}
.row {{ position: relative; height: 20px; border-bottom: 1px solid #eee; }}
.row span {{ position: absolute; left: 0; width: 22%; overflow: hidden; white-space: nowrap; }}
.row i {{ position: absolute; height: 14px; top: 3px; min-width: 3px; }}
.ok {{ background: #2a2; }} .fail {{ background: #999; }} .unknown {{ background: #d80; }}
.fault {{ background: #c22; }} .event {{ background: #26c; }}
</style>
<h1>{title}</h1><ul>{violations}</ul>
<p>Green: acknowledged. Grey: refused. Orange: no answer. Red: fault. Blue: event. Point at a bar for details.</p>
{rows}
"""
ROW = """<div class="row" title="{about}"><span>{label}</span>
<i class="{kind}" style="left:{left}%;width:{width}%"></i></div>"""
NAMES_WIDTH, WHOLE_WIDTH = 23.0, 76.0  # per cent of the page


class Bar(NamedTuple):
    begin: float
    end: float
    kind: str
    label: str
    about: str


def write_timeline(path: Path, record: Record, key: str, violations: Sequence[Violation]) -> None:
    """Write the page of one document."""
    bars = sorted([*_operations(record, key), *_faults(record), *_events(record, key)])
    last = max((bar.begin for bar in bars), default=1.0) + 1
    path.write_text(
        PAGE.format(
            title=html.escape(f"{key}, seed {record.run.get('seed')}, {record.run.get('deployment')}"),
            violations="".join(f"<li>{html.escape(f'{one.kind}: {one.text}')}</li>" for one in violations),
            rows="\n".join(_row(bar, last) for bar in bars),
        ),
        "utf-8",
    )


def _row(bar: Bar, last: float) -> str:
    left = NAMES_WIDTH + WHOLE_WIDTH * bar.begin / last
    width = WHOLE_WIDTH * (min(bar.end, last) - bar.begin) / last
    label = html.escape(f"{bar.begin:.2f} {bar.label}")
    return ROW.format(
        about=html.escape(bar.about), label=label, kind=bar.kind, left=f"{left:.2f}", width=f"{width:.2f}"
    )


def _operations(record: Record, key: str) -> list[Bar]:
    return [
        Bar(one.invoked, one.settled, one.outcome, f"{one.client} {one.name} #{one.number}",
            json.dumps({"arguments": one.arguments, "value": one.value}))
        for one in record.operations
        if one.key == key or (not one.key and key in json.dumps(one.value))
    ]  # fmt: skip


def _faults(record: Record) -> list[Bar]:
    return [Bar(one["begin"], one["end"], "fault", one["kind"], json.dumps(one)) for one in record.faults]


def _events(record: Record, key: str) -> list[Bar]:
    """Return the events of the documents that the key has named, as the first follower received them."""
    documents = {one.value.get("document") for one in record.operations if one.key == key} - {None}
    followed = next(iter(record.followed.values()), [])
    return [
        Bar(one["at"], min(one["at"], NEVER), "event", one["name"], json.dumps(one))
        for one in followed
        if one.get("document") in documents
    ]
