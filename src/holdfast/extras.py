"""Which extra of this package installs which dependency."""

from __future__ import annotations

from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from holdfast.errors import MissingExtra

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

EXTRA_BY_MODULE: Mapping[str, str] = {
    module: extra
    for extra, modules in {
        "celery": "celery kombu redis",
        "client": "httpx2 pydantic pydantic_core",
        "documents": "cryptography httpcore2 idna kreuzberg numpy openai safetensors threadpoolctl tokenizers "
        "watchfiles wordllama",
        "dramatiq": "dramatiq",
        "mcp": "mcp mcp_types",
        "metrics": "prometheus_client",
        "otel": "opentelemetry",
        "postgres": "psycopg",
        "rq": "rq",
        "s3": "boto3 botocore",
        "server": "fastapi jinja2 markdown_it nh3 python_multipart starlette uvicorn",
        "temporal": "temporalio",
    }.items()
    for module in modules.split()
}
INCLUDED_EXTRAS: Mapping[str, frozenset[str]] = {
    "mcp": frozenset({"client", "documents"}),
    "server": frozenset({"client", "documents", "metrics"}),
}


def require_extra(extra: str) -> None:
    """Raise `MissingExtra` if a dependency of an extra is not installed. Imports none of them.

    For programs that import most dependencies late: they check before they create files or start processes.
    """
    for module, home in EXTRA_BY_MODULE.items():
        if home == extra and find_spec(module) is None:
            raise MissingExtra(module, extra)


@contextmanager
def importing_extra(extra: str) -> Iterator[None]:
    """Turn a failed import inside the block into `MissingExtra`.

    Example:
        with importing_extra("server"):
            import fastapi
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = find_missing_extra(error, extra)
        if missing is None:
            raise
        raise missing from error


def find_missing_extra(error: ModuleNotFoundError, wanted: str = "") -> MissingExtra | None:
    """Return the extra that installs the missing module, or None if no extra does.

    If the `wanted` extra includes that extra, the result names `wanted`, so that one installation is enough.
    """
    module = (error.name or "").partition(".")[0]
    extra = EXTRA_BY_MODULE.get(module)
    if extra is None:
        return None
    return MissingExtra(module, wanted if extra in INCLUDED_EXTRAS.get(wanted, ()) else extra)
