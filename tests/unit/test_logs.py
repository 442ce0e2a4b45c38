"""The JSON form of the log: one object a line, with the values of the call and of the code around it."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime
from threading import Thread
from typing import Any

import pytest

from holdfast.engine import SlotKey
from holdfast.logs import JSON, OWN_LOGGER, TEXT, JsonFormatter, TextFormatter, log_fields, set_log_format
from holdfast.url_secrets import MASK

KEY = SlotKey("sea", "42", "vector")


def shown(
    form: str, *values: object, logger: str = OWN_LOGGER, level: int = logging.INFO, **more: Any
) -> dict[str, Any]:
    """Return the object that the JSON form writes for a log call."""
    line = JsonFormatter().format(logging.LogRecord(logger, level, "", 0, form, values, more.get("exc_info")))
    assert "\n" not in line
    told: dict[str, Any] = json.loads(line)
    return told


def test_a_line_has_time_level_logger_event_and_message() -> None:
    told = shown("ring.skipped slot=%d generation=%d", 7, 2, level=logging.WARNING)
    assert datetime.fromisoformat(told.pop("time")).utcoffset() is not None
    assert told == {
        "level": "warning",
        "logger": "holdfast",
        "event": "ring.skipped",
        "message": "ring.skipped slot=7 generation=2",
        "slot": 7,
        "generation": 2,
    }


def test_values_are_fields_even_if_their_text_contains_spaces_or_pairs() -> None:
    told = shown("loop.failed name=%s error=%s", "a b", "no=thing code=5 ")
    assert (told["name"], told["error"]) == ("a b", "no=thing code=5 ")
    assert "code" not in told


def test_the_key_of_a_slot_adds_base_owner_and_kind() -> None:
    told = shown("work.failed key=%s fence=%d code=%s", KEY, 3, "timeout")
    assert (told["key"], told["base"], told["owner"], told["kind"]) == ("sea/42/vector", "sea", "42", "vector")


def test_fields_of_the_code_around_are_added_and_values_of_the_call_win() -> None:
    with log_fields(job="j1", fence=1, holder=None):
        with log_fields(fence=2):
            assert shown("work.stopped code=%s", "x").items() >= {"job": "j1", "fence": 2, "code": "x"}.items()
            assert shown("work.stopped fence=%d", 9)["fence"] == 9
        assert shown("work.stopped code=%s", "x")["fence"] == 1
        assert "holder" not in shown("work.stopped code=%s", "x")
        assert shown("closing connection %s", 1, logger="uvicorn.error")["job"] == "j1"
    assert "job" not in shown("work.stopped code=%s", "x")


def test_another_thread_does_not_get_the_fields() -> None:
    seen: list[dict[str, Any]] = []
    with log_fields(job="j1"):
        thread = Thread(target=lambda: seen.append(shown("heartbeat.failed")))
        thread.start()
        thread.join()
    assert "job" not in seen[0]


def test_no_value_can_replace_the_time_or_the_message() -> None:
    with log_fields(message="other", level="other"):
        told = shown("job.ended level=%s time=%s", "low", "never")
    assert told["message"] == "job.ended level=low time=never"
    assert told["level"] == "info"
    assert told["time"] != "never"


def test_a_record_of_another_library_has_a_message_and_no_event() -> None:
    told = shown("Task %s[%s] state=%s", "a", "b", "done", logger="celery.app.trace")
    assert told["message"] == "Task a[b] state=done"
    assert told.keys() == {"time", "level", "logger", "message"}


def test_a_traceback_is_one_field_without_secrets() -> None:
    address = "redis://reader:swordfish@db.internal/0"
    try:
        int(address)
    except ValueError:
        told = shown("loop.failed name=%s error=%s", "worker", address, exc_info=sys.exc_info())
    assert told["traceback"].splitlines()[-1].endswith(f"redis://reader:{MASK}@db.internal/0'")
    assert told["error"] == f"redis://reader:{MASK}@db.internal/0"
    assert "swordfish" not in json.dumps(told)


def test_text_that_is_not_valid_unicode_is_escaped() -> None:
    assert shown("job.ended error=%s", "\udcff\u2028\n")["error"] == "\udcff\u2028\n"


@pytest.mark.parametrize("log_format", [TEXT, JSON])
def test_handlers_of_celery_keep_their_form_or_write_json_and_mask_secrets(log_format: str) -> None:
    logger = logging.getLogger(f"tests.celery.{log_format}")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("<%(levelname)s> %(message)s"))
    logger.addHandler(handler)
    set_log_format(logger, log_format)
    set_log_format(logger, log_format)  # Celery may set up a logger twice
    record = logging.LogRecord("celery", logging.INFO, "", 0, "Connected to %s", ("amqp://a:secret@b//",), None)
    told = handler.format(record)
    expected = f"Connected to amqp://a:{MASK}@b//"
    assert (json.loads(told)["message"] if log_format == JSON else told.removeprefix("<INFO> ")) == expected


def test_the_text_form_masks_tracebacks() -> None:
    try:
        int("https://user:secret@host/")
    except ValueError:
        record = logging.LogRecord(OWN_LOGGER, logging.INFO, "", 0, "loop.failed", (), sys.exc_info())
    told = TextFormatter("%(message)s").format(record)
    assert told.startswith("loop.failed\nTraceback")
    assert "secret" not in told
