"""Decides which tests run before a commit (`make test`) and which run after it (`make proof`).

Each test is in exactly one of the two. The first rule that fits decides:

1. A test with the mark `proof` runs in `make proof`.
2. A test that is repeated on PostgreSQL runs there in `make proof` and on SQLite in `make test`. In `tests/contract`
   both run in `make test`, because these tests are about the dialects. So do tests that exist for PostgreSQL only.
3. A test with a browser, with Celery workers, with an S3 server, with Prometheus, or with processes that are killed
   (`tests/acceptance`) runs in `make proof`, unless it has the mark `smoke`. Each of these suites has a smoke case.
4. All others run in `make test`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def in_proof(item: pytest.Item) -> bool:
    """Return whether a test runs in `make proof`."""
    if item.get_closest_marker("proof"):
        return True
    if repeated_on_postgres(item) and "contract" not in item.path.parts:
        return True
    return starts_much(item) and not item.get_closest_marker("smoke")


def starts_much(item: pytest.Item) -> bool:
    """Return whether a test belongs to a suite in which each test starts several programs."""
    marked = any(item.get_closest_marker(name) for name in ("celery", "s3"))
    return marked or uses(item, "browser") or uses(item, "prometheus") or "acceptance" in item.path.parts


def repeated_on_postgres(item: pytest.Item) -> bool:
    """Return whether the same test also runs on SQLite."""
    callspec = getattr(item, "callspec", None)
    return callspec is not None and any(mark.name == "postgres" for mark in callspec.marks)


def uses(item: pytest.Item, fixture: str) -> bool:
    return fixture in getattr(item, "fixturenames", ())


# Every server that tests start, and a function that recognises the tests that start it.
SERVERS: dict[str, Callable[[pytest.Item], bool]] = {
    "PostgreSQL": lambda item: item.get_closest_marker("postgres") is not None,
    "pgbouncer": lambda item: uses(item, "pgbouncer"),
    "Valkey": lambda item: uses(item, "valkey"),
    "Prometheus": lambda item: uses(item, "prometheus"),
    "nginx": lambda item: uses(item, "nginx"),
    "Temporal": lambda item: uses(item, "temporal"),
    "RabbitMQ": lambda item: uses(item, "rabbitmq"),
    "Flower": lambda item: uses(item, "flower"),
    "Celery": lambda item: item.get_closest_marker("celery") is not None,
    "SeaweedFS": lambda item: item.get_closest_marker("s3") is not None,
    "Chromium": lambda item: uses(item, "browser"),
    "holdfast serve": lambda item: item.path.name == "test_serve.py",
}
