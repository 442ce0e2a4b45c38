"""Generated requests to every operation with keys of every scope: no server error, and every response as described."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.harness import Rig
from tests.support.http_site import API, HttpSite

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
ENDLESS = {"follow_events"}  # the response is an endless stream
DESTROY = {"delete_base"}  # the other operations need the base
TRIES = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, sqlite_pattern: Path) -> Iterator[HttpSite]:
    from tests.support.clock import FakeClock  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("schema")
    path = folder / "holdfast.db"
    path.write_bytes(sqlite_pattern.read_bytes())
    rig = Rig(f"sqlite:///{path}", folder / "blobs", FakeClock(), indexes=("fulltext",))
    site = HttpSite(rig, needs_key=True)
    yield site
    site.close()
    rig.close()


LESSER = [pytest.param(scope, marks=pytest.mark.proof) for scope in ("read", "write")]  # most requests are refused


@pytest.mark.parametrize("scope", ["admin", *LESSER])
def test_no_request_causes_a_server_error_and_every_response_matches_the_description(
    site: HttpSite, scope: str
) -> None:
    key = site.key(scope)
    site.upload("whales.md", f"# Whales\n\nThe {scope} whale eats krill.", headers=site.key("admin"))
    site.rig.work()
    schema = schemathesis.openapi.from_dict(site.app.openapi())
    tried = 0
    for found in schema.get_all_operations():
        operation: Any = found.ok()  # type: ignore[union-attr]
        if operation.definition.raw["operationId"] in ENDLESS | DESTROY:
            continue

        @TRIES
        @given(case=operation.as_strategy())
        def ask(case: Any) -> None:
            nonlocal tried
            tried += 1
            if "base" in (case.path_parameters or {}) and tried % 2:
                case.path_parameters["base"] = "shelf"
            answer = case.call(base_url=site.address, headers=key)
            case.validate_response(answer, checks=CHECKS)

        ask()
    assert tried > 300


def test_every_operation_describes_its_summary_errors_and_security(site: HttpSite) -> None:
    described = site.http.get(f"{site.address}{API}/openapi.json").json()
    assert described["security"]
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], (path, method)
            assert operation["description"], (path, method)
            assert {"401", "403", "404", "409", "422", "503"} <= operation["responses"].keys(), (path, method)
