"""Every operation has examples that are valid for its schema; a server accepts them and returns the same fields."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import jsonschema  # type: ignore[import-untyped]  # it has no types
import pytest

from holdfast.api.examples import DOCUMENT_NAME, DOCUMENT_TEXT, JSON_TYPE, PARAMETERS
from holdfast.auth.principal import Scope
from tests.support.harness import Rig
from tests.support.http_site import API, HttpSite

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx2

BASE = PARAMETERS["base"]
ELSEWHERE = {("upload_files", "parent")}  # this base has no folder
PLACEHOLDERS = {"sign_in"}  # the key in the example is not a real one
ENDLESS = {"follow_events"}  # the response is an endless stream
NEEDS_MORE = {  # operations that this base does not support, and the error code that they return
    "generate_cards": "not_enabled",
    "cancel_cards": "unknown_owner",
    "redeliver_event": "unknown_delivery",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, sqlite_pattern: Path) -> Iterator[HttpSite]:
    """Start a server with an empty database."""
    from tests.support.clock import FakeClock  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("examples")
    path = folder / "holdfast.db"
    path.write_bytes(sqlite_pattern.read_bytes())
    roots = {"folder_roots": str(tmp_path_factory.getbasetemp())}
    rig = Rig(f"sqlite:///{path}", folder / "blobs", FakeClock(), indexes=("fulltext",), settings=roots)
    site = HttpSite(rig)
    yield site
    site.close()
    rig.close()


def operations(site: HttpSite) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method.upper(), path.removeprefix(API), operation)
        for path, methods in site.app.openapi()["paths"].items()
        for method, operation in methods.items()
    ]


def fits(site: HttpSite, example: Any, schema: dict[str, Any], where: object) -> None:
    """Check that an example is valid for its schema."""
    whole = {**schema, "components": site.app.openapi()["components"]}
    checks = jsonschema.Draft202012Validator(whole, format_checker=jsonschema.FormatChecker())
    assert not [error.message for error in checks.iter_errors(example)], where


def test_every_parameter_has_an_example_that_is_valid_for_its_schema(site: HttpSite) -> None:
    for _, path, operation in operations(site):
        for one in operation.get("parameters", ()):
            where = (path, operation["operationId"], one["name"])
            assert "example" in one, where
            fits(site, one["example"], one["schema"], where)


def test_every_body_has_examples_that_are_valid_for_its_schema(site: HttpSite) -> None:
    for _, path, operation in operations(site):
        body = operation.get("requestBody", {}).get("content", {}).get(JSON_TYPE)
        if body is not None:
            assert body["examples"], path
            for one in body["examples"].values():
                fits(site, one["value"], body["schema"], (path, one))


def test_every_response_has_an_example_that_is_valid_for_its_schema(site: HttpSite) -> None:
    seen = 0
    for _, path, operation in operations(site):
        for code, answer in operation["responses"].items():
            told = answer.get("content", {}).get(JSON_TYPE)
            if code.startswith("2") and told is not None:
                assert "example" in told, (path, operation["operationId"])
                fits(site, told["example"], told["schema"], (path, operation["operationId"]))
                seen += 1
    assert seen > 50


def shape(answer: Any) -> Any:
    """Return the names of the fields of an answer, or of the first item of a list."""
    if isinstance(answer, list):
        return [shape(one) for one in answer[:1]]
    return sorted(answer) if isinstance(answer, dict) else None


class Readers:
    """Prepares the base, the document and the other objects that the examples refer to."""

    def __init__(self, site: HttpSite, folder: Path) -> None:
        self.site = site
        self.http = site.http
        self.http.headers.update(site.key("admin"))
        self.folder = folder
        folder.mkdir()
        (folder / "travel.md").write_text("# Travel\n\nBy train.\n")
        self.there: dict[str, str] = {}

    def begin(self) -> None:
        """Create the base and its document again. `there` maps path parameters to real ids."""
        for base in self.http.get("/bases").json():
            self.http.delete(f"/bases/{base['name']}")
        self.http.post("/bases", json={"name": BASE, "indexes": ["fulltext", "graph"]}).raise_for_status()
        document = self.site.index(DOCUMENT_NAME, DOCUMENT_TEXT, BASE)
        found = self.http.get(f"/bases/{BASE}/documents/{document}/chunks").json()["items"]
        self.there = {"document": str(document), "chunk": str(found[0]["chunk"])}

    def stands(self) -> bool:
        """Return whether the document is still indexed under its own name after the earlier requests."""
        self.site.rig.work()
        place = f"/bases/{BASE}/documents/{self.there.get('document', 1)}"
        found = self.http.get(place)
        if not found.is_success or (found.json()["name"], found.json()["status"]) != (DOCUMENT_NAME, "success"):
            return False
        return self.http.get(f"{place}/passages/{self.there.get('chunk', 1)}").is_success

    def send(self, method: str, path: str, operation: dict[str, Any], body: Any) -> httpx2.Response:
        """Send an example request with the ids of existing objects."""
        if not self.stands():
            self.begin()
        content = self.prepare(operation["operationId"], body)
        params: dict[str, Any] = {}
        for one in operation.get("parameters", ()):
            if one["in"] == "path":
                path = path.replace(f"{{{one['name']}}}", self.there.get(one["name"], str(one["example"])))
            elif one["in"] == "query" and (operation["operationId"], one["name"]) not in ELSEWHERE:
                params[one["name"]] = one["example"]
        return self.http.request(method, path, params=params, content=content, json=body)

    def prepare(self, name: str, body: Any) -> bytes | None:
        """Create what a request needs and adapt its body to it. Return the body if it is not JSON."""
        if name in ("get_job", "cancel_job", "retry_job", "prioritise_job"):
            self.there["job"] = self.http.post(f"/bases/{BASE}/documents/{self.there['document']}:force").json()["job"]
        if name.endswith(("_webhook", "_secret", "_deliveries")):
            hook, _ = self.site.rig.library.webhooks.create("https://example.org/hook", ["*"])
            self.there["webhook"] = str(hook.id)
        match name:
            case "get_job" | "retry_job":
                self.http.post(f"/jobs/{self.there['job']}:cancel").raise_for_status()
            case "create_base":
                self.http.delete(f"/bases/{body['name']}")
            case "preview_folder":
                body["path"] = str(self.folder)
            case "act_on_documents" if "documents" in body:
                body["documents"] = [int(self.there["document"])]
            case "upload_files":
                return b"# Leave\n\nNew.\n"
            case "restore_base":
                return self.http.get(f"/bases/{BASE}/archive").content
            case "revoke_key":
                key, _ = self.site.rig.library.keys.create("spare", Scope.READ)
                self.there["key"] = str(key.id)
        return None


def test_a_server_accepts_the_example_requests(site: HttpSite, tmp_path: Path) -> None:
    readers = Readers(site, tmp_path / "handbook")
    for method, path, operation in operations(site):
        name = operation["operationId"]
        if name in PLACEHOLDERS | ENDLESS:
            continue
        content = operation.get("requestBody", {}).get("content", {})
        bodies = [one["value"] for one in content[JSON_TYPE]["examples"].values()] if JSON_TYPE in content else [None]
        for body in bodies:
            answer = readers.send(method, path, operation, deepcopy(body))
            if name in NEEDS_MORE:
                assert answer.json()["code"] == NEEDS_MORE[name], (name, answer.text)
                continue
            assert answer.is_success, (name, body, answer.text)
            told = operation["responses"][str(answer.status_code)].get("content", {}).get(JSON_TYPE)
            if told is not None and answer.headers["content-type"] == JSON_TYPE:
                fits(site, answer.json(), told["schema"], name)
                if answer.json() != [] and body == bodies[0]:  # the example response belongs to the first body
                    assert shape(answer.json()) == shape(told["example"]), name
