"""Logging that masks secrets in URLs."""

from __future__ import annotations

import logging

from holdfast.url_secrets import mask_secrets

HTTP_CLIENT_LOGGER = "httpx2"  # logs the URL of every request


class _MaskingFormatter(logging.Formatter):
    """Masks secrets in the whole output, including tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        return mask_secrets(super().format(record))


def log_to_stderr(level: int | str, form: str) -> None:
    """Log to stderr and mask secrets in URLs. Does nothing if the application has configured logging."""
    handler = logging.StreamHandler()
    handler.setFormatter(_MaskingFormatter(form))
    logging.basicConfig(level=level, handlers=[handler])


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
