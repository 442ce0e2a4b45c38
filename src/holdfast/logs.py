"""Logging without secrets in addresses."""

from __future__ import annotations

import logging

from holdfast.url_secrets import mask_secrets

HTTP_CLIENT_LOGGER = "httpx2"  # logs the address of every request


class _MaskingFormatter(logging.Formatter):
    """Masks secrets in addresses in everything that is logged, including tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record without secrets."""
        return mask_secrets(super().format(record))


def log_to_stderr(level: int | str, form: str) -> None:
    """Log to stderr without secrets in addresses, unless the application has configured logging already."""
    handler = logging.StreamHandler()
    handler.setFormatter(_MaskingFormatter(form))
    logging.basicConfig(level=level, handlers=[handler])


class _MaskingFilter(logging.Filter):
    """Masks secrets in the arguments of a record, whatever handler of the application receives it."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = mask_secrets(record.getMessage()), ()
        return True


def mask_http_client_log() -> None:
    """Mask secrets in what the HTTP client logs, in any program that uses this library."""
    logger = logging.getLogger(HTTP_CLIENT_LOGGER)
    if not any(isinstance(one, _MaskingFilter) for one in logger.filters):
        logger.addFilter(_MaskingFilter())
