"""The message of a call: its arguments, and everything that Celery needs to send it again.

A message that is sent again has the same id, chain, chord, links, group, headers and root as the first one. A countdown
and a time of expiry are stored as points in time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from celery.utils.time import maybe_iso8601, maybe_make_aware
from kombu.exceptions import EncodeError

from holdfast.errors import BadRequest
from holdfast.guard.celery.encoding import decode, encode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from celery import Celery, Task
    from celery.app.task import Context

# Objects and settings of one publication, or of this one process.
NOT_STORED = frozenset(
    {"add_to_parent", "connection", "exchange_type", "is_eager", "producer", "publisher", "redelivered", "result_cls"}
    | {"retry", "retry_policy", "route_name", "router", "task_id", "task_type"}
)
CONTINUATIONS = ("link", "link_error", "chain", "chord")
NOT_FOR_ANSWERS = ("eta", "expires", "countdown")  # the answer is known, so nothing has to wait
HEADER = "holdfast"  # options of the guard, for calls that are admitted when their message arrives
TRIES_HEADER = "holdfast_tries"  # how often the message met a live lease


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_options(
        cls, task: Task, task_id: str, args: Sequence[Any], kwargs: Mapping[str, Any], options: Mapping[str, Any]
    ) -> Message:
        """Return the message of a call that this process makes."""
        app = task.app
        stored = {name: value for name, value in options.items() if name not in NOT_STORED and value is not None}
        stored = {name: _make_storable(name, value) for name, value in stored.items()}
        now: datetime = app.now()
        countdown = stored.pop("countdown", None)
        if countdown is not None:
            stored["eta"] = now + timedelta(seconds=float(countdown))
        if isinstance(stored.get("expires"), int | float):
            stored["expires"] = now + timedelta(seconds=float(stored["expires"]))
        parent = app.current_worker_task
        if parent is not None:
            stored.setdefault("parent_id", parent.request.id)
            stored.setdefault("root_id", parent.request.root_id)
        stored.setdefault("root_id", task_id)
        stored.setdefault("reply_to", app.thread_oid)
        return cls(args=list(args), kwargs=dict(kwargs), options=stored)

    @classmethod
    def from_request(cls, request: Context, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Message:
        """Return the message that a worker received."""
        delivery = request.delivery_info or {}
        options = {
            **request.as_execution_options(),
            **{name: delivery.get(name) for name in ("exchange", "routing_key", "priority")},
        }
        if "ignore_result" in vars(request):
            options["ignore_result"] = request.ignore_result
        if not options["exchange"]:  # the anonymous exchange routes by the name of the queue
            options.pop("exchange")
            options["queue"] = options.pop("routing_key")
        stored = {name: value for name, value in options.items() if name not in NOT_STORED and value is not None}
        return cls(args=list(args), kwargs=dict(kwargs), options=stored)

    @classmethod
    def decode(cls, app: Celery, text: str) -> Message:
        return cls(**decode(app, text))

    def encode(self, task: Task) -> str:
        """Return the text to store, or raise `BadRequest` if the serializer of the task cannot encode it."""
        try:
            return encode(
                {"args": self.args, "kwargs": self.kwargs, "options": self.options},
                self.options.get("serializer") or task.serializer,
            )
        except EncodeError as error:
            raise BadRequest("arguments_not_stored", task=task.name, detail=error) from error

    @property
    def continues(self) -> bool:
        """Whether Celery must start a callback, an errback or the next task after this one."""
        return any(self.options.get(name) for name in CONTINUATIONS)

    def due_at(self, app: Celery) -> datetime | None:
        """Return the time before which the task must not run."""
        eta = self.options.get("eta")
        return None if eta is None else maybe_make_aware(maybe_iso8601(eta), app.timezone)

    def with_times(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return options with the points in time of this message, so that the first message and later ones agree."""
        rest = {name: value for name, value in options.items() if name not in NOT_FOR_ANSWERS}
        return rest | {name: self.options[name] for name in NOT_FOR_ANSWERS if name in self.options}

    def options_for_answer(self) -> dict[str, Any]:
        return {name: value for name, value in self.options.items() if name not in NOT_FOR_ANSWERS}


def continues(request: Context) -> bool:
    """Return whether Celery starts a callback or the next task after this execution."""
    return bool(request.callbacks or request.chain or request.chord)


def make_call_id(task_id: str, options: Mapping[str, Any]) -> str:
    """Return the id of a call. A call that replaces another one has its Celery id, and another nesting."""
    nesting = options.get("replaced_task_nesting")
    return f"{task_id}#{nesting}" if nesting else task_id


def _make_storable(name: str, value: Any) -> Any:
    """Return the name of a queue or exchange instead of the object."""
    return value.name if name in ("queue", "exchange") and hasattr(value, "name") else value
