"""Converts messages, values and exceptions to text for the database, with the serializers of the app, and back."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any

from kombu import serialization

if TYPE_CHECKING:
    from celery import Celery, Task


def encode(value: Any, serializer: str) -> str:
    """Encode a value with a serializer of Celery. Raises `EncodeError` if it cannot."""
    content_type, encoding, data = serialization.dumps(value, serializer)
    binary = isinstance(data, bytes)
    return json.dumps(
        {
            "content_type": content_type,
            "encoding": encoding,
            "binary": binary,
            "data": b64encode(data).decode("ascii") if binary else data,
        }
    )


def decode(app: Celery, text: str) -> Any:
    """Decode a value, if the app accepts its serializer."""
    stored = json.loads(text)
    data = b64decode(stored["data"]) if stored["binary"] else stored["data"]
    accepted = {app.conf.task_serializer, app.conf.result_serializer, *app.conf.accept_content}
    return serialization.loads(
        data, stored["content_type"], stored["encoding"], accept=serialization.prepare_accept_content(accepted)
    )


def encode_exception(task: Task, error: BaseException) -> str:
    serializer = task.app.conf.result_serializer
    return encode(task.backend.prepare_exception(error, serializer), serializer)


def decode_exception(task: Task, text: str) -> BaseException:
    """Return the exception as a client gets it from the result backend."""
    error: BaseException = task.backend.exception_to_python(decode(task.app, text))
    return error
