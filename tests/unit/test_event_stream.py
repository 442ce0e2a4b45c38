"""Every message of a stream has the format that a browser's EventSource reads."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from holdfast.clock import Moment
from holdfast.events.feed import Heartbeat, Reset
from holdfast.events.progress import ProgressMessage, RunningSlot
from holdfast.events.public_events import Cursor, PublicEvent
from holdfast.events.stream import format_message, format_preamble


def fields(text: str) -> dict[str, str]:
    """Parse one message as the standard for server-sent events requires."""
    assert text.endswith("\n\n")
    lines = text[:-2].split("\n")
    assert all(lines)
    return dict(line.split(": ", 1) for line in lines if not line.startswith(":"))


def event(**data: object) -> PublicEvent:
    return PublicEvent(
        cursor=Cursor(5, 9), type="base.renamed", at=Moment(0), base="3", document=None, owner="", data=data
    )


@given(st.text())
def test_an_event_is_one_message_whatever_text_it_contains(name: str) -> None:
    read = fields(format_message(event(name=name)))
    assert (read["id"], read["event"]) == ("5-9", "base.renamed")
    assert json.loads(read["data"]) == event(name=name).to_dict()


def test_a_line_break_in_a_name_does_not_end_a_line_of_the_stream() -> None:
    for sign in ("\n", "\r", "\r\n"):
        assert "\r" not in format_message(event(name=sign))
        assert format_message(event(name=sign)).count("\n") == 4


def test_progress_has_no_id() -> None:
    running = RunningSlot("3", "1", "vector", "job", 2, "embedding", 1, 2, 3, 4)
    read = fields(format_message(ProgressMessage(base="3", document=1, owner="1", parts=(running,))))
    assert "id" not in read
    assert read["event"] == "progress"
    shown = json.loads(read["data"])
    assert (shown["document"], shown["generation"], shown["parts"][0]["done"]) == (1, 2, 3)


def test_a_reset_contains_the_position_from_which_events_continue() -> None:
    assert fields(format_message(Reset(Cursor(5, 9)))) == {"id": "5-9", "event": "reset", "data": '{"id":"5-9"}'}


def test_a_heartbeat_triggers_no_event_and_updates_the_position_of_readers_that_may_know_it() -> None:
    assert format_message(Heartbeat()) == ": still here\n\n"
    assert fields(format_message(Heartbeat(Cursor(5, 9)))) == {"id": "5-9"}


def test_a_browser_waits_two_seconds_before_it_connects_again() -> None:
    assert format_preamble() == "retry: 2000\n\n"
