"""Calls of guarded functions: their keys, their arguments as stored with a job, and the request for them."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Any

from holdfast.errors import BadRequest, BadSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.engine.store import Job
    from holdfast.guard.run import Run


def make_key_function(function: Callable[..., Any], key: str | Callable[..., str] | None) -> Callable[..., str]:
    """Return a function that finds the key in the arguments of a call; None is the first parameter after the run."""
    if callable(key):
        return key
    signature = inspect.signature(function)
    first, *others = signature.parameters.values()
    names = [one.name for one in others]
    name = key if key is not None else next(iter(names), "")
    if name not in names:
        raise BadSettings("key_parameter_missing", function=function.__name__, parameter=name, first=first.name)
    plain = signature.replace(parameters=others)

    def key_of(*args: Any, **kwargs: Any) -> str:
        try:
            bound = plain.bind(*args, **kwargs)
            bound.apply_defaults()
            return str(bound.arguments[name])
        except (TypeError, KeyError) as error:
            raise BadRequest(
                "key_argument_missing", function=function.__name__, parameter=name, detail=error
            ) from error

    return key_of


def write_call(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return the arguments as the payload of a job, so that any process can run it."""
    try:
        return json.dumps({"args": list(args), "kwargs": dict(kwargs)})
    except (TypeError, ValueError) as error:
        raise BadRequest("arguments_not_json", task=name, detail=error) from error


def bind_call(function: Callable[..., Any], job: Job) -> Callable[[Run], Any]:
    """Return the function with the arguments that were stored with the job."""
    call = json.loads(job.payload or '{"args": [], "kwargs": {}}')
    return lambda run: function(run, *call["args"], **call["kwargs"])
