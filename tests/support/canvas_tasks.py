"""A Celery app for the canvas suite: each task exists twice, plain and guarded, with the same function.

The environment names the broker, the result backend, the guard's database and a folder. The tasks record what they do
in this folder, and read from it when to go on.
"""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from celery import Celery

from holdfast.errors import Transient
from holdfast.guard import Guard
from holdfast.guard.celery import guarded
from holdfast.settings import Settings

if TYPE_CHECKING:
    from holdfast.guard import Run

FOLDER = Path(os.environ["CANVAS_FOLDER"])
SECOND = timedelta(seconds=1)
STEP_SECONDS = 0.05

app = Celery("canvas", broker=os.environ["CANVAS_BROKER"], backend=os.environ["CANVAS_BACKEND"], set_as_current=False)
app.conf.update(
    broker_connection_retry_on_startup=True,
    broker_transport_options={"unacked_restore_interval": 1, "unacked_restore_throttle": 1},
    worker_prefetch_multiplier=1,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    worker_send_task_events=True,
    result_chord_join_timeout=10.0,
)
guard = Guard(
    Settings(
        database=os.environ["CANVAS_DATABASE"],
        lease=600 * SECOND,  # so that no test passes because a lease has expired
        heartbeat=SECOND,
        period=SECOND / 2,
        ring_again=SECOND,
        backoff=SECOND / 5,
        attempts=3,
        lock_held_delay=SECOND / 2,
    )
)


def publish_twice() -> None:
    """Publish each message of a step that asks for it two times, as a broker does that delivers it again."""
    send = app.amqp.send_task_message

    def send_twice(producer: Any, name: str, message: Any, **options: Any) -> Any:
        _args, kwargs, _embed = message.body
        for _ in range(2 if kwargs.get("how") == "twice" else 1):
            sent = send(producer, name, message, **options)
        return sent

    app.amqp.__dict__["send_task_message"] = send_twice


publish_twice()


def note(name: str, key: str) -> None:
    """Record that something happened, in a file that all processes share."""
    with (FOLDER / name).open("ab", buffering=0) as file:
        file.write(f"{key}\n".encode())


def is_first(key: str) -> bool:
    """Return whether this is the first run for a key."""
    try:
        (FOLDER / f"{key}.begun").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def work(previous: Any, key: str, how: str, run: Run | None) -> str:
    """Do what a step does. `how` is what happens to it."""
    note("ran", key)
    first = is_first(key)
    if how == "kill" and first:
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "transient" and first:
        raise Transient("rate_limited")
    if how == "fail":
        raise ValueError(f"{key} is bad")
    while how in ("hold", "twice", "postpone") and not (FOLDER / f"{key}.released").exists():
        if run is not None and how != "postpone":
            run.checkpoint(stage="held")
        time.sleep(STEP_SECONDS)
    if how == "postpone" and first:
        raise Transient("rate_limited")
    return f"{previous}>{key.rsplit('-', 1)[-1]}"


@app.task(shared=False, name="plain.step", acks_late=True)  # type: ignore[untyped-decorator]  # Celery has no types
def plain_step(previous: Any, key: str, how: str = "") -> str:
    return work(previous, key, how, None)


@app.task(shared=False, name="plain.replaced", acks_late=True, bind=True)  # type: ignore[untyped-decorator]  # Celery has no types
def plain_replaced(self: Any, previous: Any, key: str, how: str = "") -> str:
    return str(self.replace(after.s(work(previous, key, how, None), key=key.rsplit("-", 1)[0])))


@app.task(shared=False, name="plain.nothing", acks_late=True)  # type: ignore[untyped-decorator]  # Celery has no types
def plain_nothing(key: str) -> None:
    note("ran", key)


@guarded(app, guard, key="key", name="guarded.step")
def guarded_step(run: Run, previous: Any, key: str, how: str = "") -> str:
    return work(previous, key, how, run)


@guarded(app, guard, key="key", name="guarded.replaced", bind=True)
def guarded_replaced(self: Any, run: Run, previous: Any, key: str, how: str = "") -> str:
    return str(self.replace(after.s(work(previous, key, how, run), key=key.rsplit("-", 1)[0])))


@guarded(app, guard, key="key", name="guarded.nothing")
def guarded_nothing(run: Run, key: str) -> None:
    note("ran", key)


@guarded(app, guard, key="key", name="guarded.early", acks_late=False, reject_on_worker_lost=False, rate_limit="100/s")
def guarded_early(run: Run, previous: Any, key: str, how: str = "") -> str:
    """A step whose message is acknowledged before it runs."""
    return work(previous, key, how, run)


@guarded(app, guard, key="key", name="guarded.limited", time_limit=1)
def guarded_limited(run: Run, previous: Any, key: str, how: str = "") -> str:
    return work(previous, key, how, run)


@guarded(app, guard, key="key", name="guarded.stuck")
def guarded_stuck(run: Run, previous: Any, key: str, how: str = "") -> str:
    """A step whose first process never gets to store that it was revoked."""
    return work(previous, key, how, run)


def store_revoked_later(call: Any, request: Any) -> None:
    if is_first(f"{call.key}-answer"):
        note("answering", call.key)
        time.sleep(3600)
    store_revoked(call, request)


store_revoked = guarded_stuck.store_revoked
guarded_stuck.store_revoked = store_revoked_later  # type: ignore[method-assign]


@app.task(shared=False, name="after")  # type: ignore[untyped-decorator]  # Celery has no types
def after(value: Any, key: str) -> str:
    """Continue after a step."""
    note("after", key)
    return f"{value}|after"


@app.task(shared=False, name="together")  # type: ignore[untyped-decorator]  # Celery has no types
def together(values: list[Any], key: str) -> str:
    """Continue after a group."""
    note("after", key)
    return "+".join(values)


@app.task(shared=False, name="failed")  # type: ignore[untyped-decorator]  # Celery has no types
def failed(request: Any, error: Any, traceback: Any, key: str = "") -> None:
    """Record the error of a step."""
    note("failed", key)
