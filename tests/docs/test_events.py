"""docs/events.md lists exactly the event types of the code."""

from __future__ import annotations

from pathlib import Path

from holdfast.events.public_events import EVENT_TYPES

TEXT = (Path(__file__).resolve().parents[2] / "docs/events.md").read_text()


def test_every_event_type_is_documented_with_its_description() -> None:
    table = TEXT.split("## The catalogue")[1].split("## Order")[0]
    cells = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| `")]
    assert {type_.strip().strip("`"): said.strip() for type_, said in cells} == EVENT_TYPES
