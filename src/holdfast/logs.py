"""Logging to stderr, as text or as JSON. Both forms mask secrets in URLs.

Every log call names an event, followed by key=value pairs: `log.info("work.failed key=%s code=%s", key, code)`. The
text form prints this line. The JSON form is one object a line with the same values as fields, and with the fields that
the code around the call has added:

    with log_fields(job=ticket.job, fence=ticket.fence):
        log.info("work.failed code=%s", code)
"""

from __future__ import annotations

import json
import logging
import re
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from holdfast.url_secrets import mask_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextvars import Token

OWN_LOGGER = "holdfast"
HTTP_CLIENT_LOGGER = "httpx2"  # logs the URL of every request
TEXT, JSON = "text", "json"
LOG_FORMATS = (TEXT, JSON)

_KEY_PATTERN = re.compile(r"([a-z_]+)=%[a-z]")
_field_sources: list[Callable[[], Mapping[str, object]]] = []
_fields: ContextVar[Mapping[str, object]] = ContextVar("holdfast_log_fields", default={})  # noqa: B039 - never changed


class log_fields:  # noqa: N801 - used like a function, and faster than a generator
    """Add fields to every JSON log line inside the block, in this thread or asynchronous task."""

    __slots__ = ("_given", "_token")

    def __init__(self, **given: object) -> None:
        self._given = given
        self._token: Token[Mapping[str, object]]

    def __enter__(self) -> None:
        around = _fields.get()
        self._token = _fields.set({**around, **self._given} if around else self._given)

    def __exit__(self, *_: object) -> None:
        _fields.reset(self._token)


def add_field_source(read: Callable[[], Mapping[str, object]]) -> None:
    """Let a function add fields to every JSON log line, such as the ids of the current trace."""
    if read not in _field_sources:
        _field_sources.append(read)


class TextFormatter(logging.Formatter):
    """Formats a line, and masks secrets in the whole output, including tracebacks."""

    def __init__(self, form: str | None = None, inner: logging.Formatter | None = None) -> None:
        super().__init__(form)
        self._inner = inner  # of the application; None: the given form

    def format(self, record: logging.LogRecord) -> str:
        return mask_secrets(self._inner.format(record) if self._inner else super().format(record))


class JsonFormatter(logging.Formatter):
    """Formats a record of any library as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message,
        }
        own = record.name == OWN_LOGGER
        if own:
            line["event"] = message.partition(" ")[0]
        fields = dict(_fields.get())
        for read in _field_sources:
            fields.update(read())
        if own:
            fields.update(_read_pairs(record))
        for name, value in fields.items():
            if value is not None:
                line.setdefault(name, value)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return json.dumps({name: _to_json(value) for name, value in line.items()})


def _read_pairs(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    """Return the values of a log call by the names in its format.

    A named tuple, such as the key of a slot, is a value, and each of its fields is one, too.
    """
    names = _find_keys(str(record.msg))
    if not isinstance(record.args, tuple) or len(names) != len(record.args):
        return
    for name, value in zip(names, record.args, strict=True):
        if hasattr(value, "_asdict"):
            yield from value._asdict().items()
        yield name, value


@lru_cache(maxsize=512)  # more than there are log calls
def _find_keys(form: str) -> list[str]:
    return _KEY_PATTERN.findall(form)


def _to_json(value: object) -> Any:
    return value if isinstance(value, bool | int | float) else mask_secrets(str(value))


def log_to_stderr(level: int | str, form: str, log_format: str = TEXT) -> None:
    """Log to stderr. Does nothing if the application has configured logging.

    A second call may change the format of the first one to JSON.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(TextFormatter(form))
    logging.basicConfig(level=level, handlers=[handler])
    if log_format == JSON:
        for configured in logging.getLogger().handlers:
            if isinstance(configured.formatter, TextFormatter):
                configured.setFormatter(JsonFormatter())
        logging.captureWarnings(capture=True)


def set_log_format(logger: logging.Logger, log_format: str) -> None:
    """Let the handlers that another library has added to a logger mask secrets, or write JSON."""
    for handler in logger.handlers:
        if not isinstance(handler.formatter, TextFormatter | JsonFormatter):
            handler.setFormatter(JsonFormatter() if log_format == JSON else TextFormatter(inner=handler.formatter))


class _MaskingFilter(logging.Filter):
    """Masks secrets in a record before any handler of the application receives it."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = mask_secrets(record.getMessage()), ()
        return True


def mask_http_client_log() -> None:
    """Mask secrets in the log of the HTTP client, also in applications that only use this library."""
    logger = logging.getLogger(HTTP_CLIENT_LOGGER)
    if not any(isinstance(known, _MaskingFilter) for known in logger.filters):
        logger.addFilter(_MaskingFilter())
