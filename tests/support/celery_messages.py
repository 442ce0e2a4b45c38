"""Messages on Celery's in-memory broker: tests take them from the queue, and execute them as a worker does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from celery import states
from celery.app.trace import build_tracer
from kombu.serialization import prepare_accept_content
from sqlalchemy import select

from holdfast.guard.tables import calls

if TYPE_CHECKING:
    from celery import Celery

    from holdfast.guard import Guard

MOST_ROUNDS = 20


def sent(app: Celery, queue: str = "celery") -> list[Any]:
    """Take all messages from a queue."""
    found = []
    with app.connection_for_read() as connection, connection.SimpleQueue(queue) as waiting:
        while waiting.qsize():
            message = waiting.get_nowait()
            message.accept = prepare_accept_content(app.conf.accept_content)
            found.append(message)
            message.ack()
    return found


def take(app: Celery, queue: str = "celery") -> Any:
    """Take the only message from a queue."""
    (message,) = sent(app, queue)
    return message


def execute(app: Celery, message: Any) -> str:
    """Execute a message as a worker does, and return the state that Celery gives it."""
    args, kwargs, embed = message.payload
    task = app.tasks[message.headers["task"]]
    request = {**message.headers, **embed, "delivery_info": message.delivery_info}
    tracer = build_tracer(task.name, task, app=app)
    _, info, _, _ = tracer(message.headers["id"], args, kwargs, request)
    return str(info.state) if info is not None else states.SUCCESS


def execute_all(app: Celery, *, pause: float = 0) -> list[str]:
    """Execute messages until no one is sent, all that were sent after each pause."""
    found: list[str] = []
    for _ in range(MOST_ROUNDS):
        if not (messages := sent(app)):
            return found
        time.sleep(pause)
        found += [execute(app, message) for message in messages]
    raise AssertionError(f"messages without end: {found}")


def find_answered(guard: Guard) -> set[str]:
    """Return the ids of the calls that were answered."""
    statement = select(calls.c.id).where(calls.c.answered_at.is_not(None))
    return {row[0] for row in guard.store.database.read(statement)}


def get(result: Any) -> Any:
    """Return or raise what a call was answered with. Fail if it was not answered, instead of waiting for it."""
    assert result.ready(), result.state
    return result.get()
