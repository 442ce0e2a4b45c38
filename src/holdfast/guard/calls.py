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


def make_key_function(
    function: Callable[..., Any], key: str | Callable[..., str] | None, passed: int = 1
) -> Callable[..., str]:
    """Return a function that finds the key in the arguments of a call; None is the first parameter of the caller.

    The guard passes the first `passed` parameters itself: the run, and with Celery's `bind` the task before it.
    """
    if callable(key):
        return key
    plain = drop_parameters(function, passed)
    name = key if key is not None else next(iter(plain.parameters), "")
    if name not in plain.parameters:
        own = [*inspect.signature(function).parameters][:passed]
        raise BadSettings("key_parameter_missing", function=function.__name__, parameter=name, first=own[-1])

    def key_of(*args: Any, **kwargs: Any) -> str:
        try:
            bound = plain.bind(*args, **kwargs)
        except TypeError as error:
            raise BadRequest(
                "key_argument_missing", function=function.__name__, parameter=name, detail=error
            ) from error
        bound.apply_defaults()
        return str(bound.arguments[name])

    return key_of


def drop_parameters(function: Callable[..., Any], passed: int) -> inspect.Signature:
    """Return the signature without the first parameters, which the guard passes."""
    signature = inspect.signature(function)
    return signature.replace(parameters=list(signature.parameters.values())[passed:])


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
