"""Strings and maps that cannot be stored or shown: every route refuses them with a clear message, on both databases."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import anyio
import pytest
from mcp.client.client import Client
from typer.testing import CliRunner

from holdfast import Holdfast
from holdfast.cli.app import app
from holdfast.mcp import make_server
from holdfast.web.site import install_pages
from tests.support.harness import Rig
from tests.support.http_site import API, HttpSite, problem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx2

    from tests.support.clock import FakeClock

JSON = "application/json"
NUL, SURROGATE = "a\0b", "a\ud800b"
SQL = "a%27%22%29%3B%20DROP%20TABLE%20library_items%3B%20--"  # a'"); DROP TABLE library_items; --
IN_ADDRESSES = ("a%00b", "a%ED%A0%80b", SQL)  # NUL, the bytes of a lone surrogate, and SQL
ENDLESS = {"follow_events"}  # an endless stream; `list_events` has the same parameters
DEEP = 256  # earlier versions stored metadata of this depth but could not show it


def nested(levels: int) -> dict[str, Any]:
    """Return nested maps of this depth."""
    found: dict[str, Any] = {"end": True}
    for _ in range(levels - 1):
        found = {"in": found}
    return found


def refused(answer: httpx2.Response, field: str) -> dict[str, Any]:
    """Check that the request was refused and that the error names the field."""
    body = problem(answer)
    assert (answer.status_code, body["code"]) == (422, "bad_request"), answer.text
    assert field in body["detail"], body["detail"]
    return body


class Operations:
    """Every operation of the OpenAPI description, with valid values for its parameters."""

    def __init__(self, site: HttpSite) -> None:
        self._described = site.app.openapi()
        document = site.index("whales.md", "# Whales\n\nThe blue whale eats krill.")
        job = site.http.get("/jobs").json()["items"][0]["id"]
        self._known = {"base": "shelf", "document": document, "job": job, "key": "krill", "action": "index"}

    def requests(self) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
        """Yield a request for each string in each operation: operation id, method, path, and other arguments."""
        for path, methods in self._described["paths"].items():
            for method, operation in methods.items():
                if operation["operationId"] in ENDLESS or not path.startswith(API):
                    continue
                for address, more in self._variants(path, operation):
                    yield operation["operationId"], method, address.removeprefix(API), more

    def _variants(self, path: str, operation: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        parameters = operation.get("parameters", ())
        valid = self._filled(path)
        bodies = list(self._bodies(operation))
        more = {"json": bodies[0]} if bodies else {}
        for one in parameters:
            if not self._takes_text(one["schema"]):
                continue
            for hostile in IN_ADDRESSES:
                if one["in"] == "path":
                    yield self._filled(path, **{one["name"]: hostile}), more
                elif one["in"] == "query":
                    yield f"{valid}?{one['name']}={hostile}", more
        for body in bodies:
            for hostile in (NUL, SURROGATE):
                for changed in self._changed(body, hostile):
                    yield valid, {"content": json.dumps(changed).encode(), "headers": {"Content-Type": JSON}}

    def _filled(self, path: str, **hostile: str) -> str:
        for name, value in {**self._known, "webhook": 1, "delivery": 1, "chunk": 1, "form": "csv"}.items():
            text = hostile.get(name) or quote(str(value), safe="")
            path = path.replace(f"{{{name}}}", text).replace(f"{{{name}:path}}", text)
        return path

    def _bodies(self, operation: dict[str, Any]) -> Iterator[Any]:
        """Yield the example bodies, and each of them again with every optional text or map added."""
        content = operation.get("requestBody", {}).get("content", {}).get(JSON)
        for example in (content or {}).get("examples", {}).values():
            body = json.loads(json.dumps(example["value"]).replace("handbook", "shelf"))
            yield body
            for name, schema in self._resolved(content["schema"])["properties"].items():
                if name not in body and self._takes_text(schema):
                    yield body | {name: ["text"] if self._is_list(schema) else "text"}
                elif name not in body and self._takes_map(schema):
                    yield body | {name: {"key": "text"}}

    def _changed(self, value: Any, hostile: str) -> Iterator[Any]:
        """Yield a copy of the body for each of its strings and maps, with a hostile value or key in that place."""
        match value:
            case str():
                yield hostile
            case list():
                for place, one in enumerate(value):
                    yield from ([*value[:place], new, *value[place + 1 :]] for new in self._changed(one, hostile))
            case dict():
                yield value | {hostile: 1}
                for key, one in value.items():
                    yield from (value | {key: new} for new in self._changed(one, hostile))

    def _resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        name = schema.get("$ref", "").rpartition("/")[2]
        found: dict[str, Any] = self._described["components"]["schemas"][name] if name else schema
        return found

    def _kinds(self, schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for one in schema.get("anyOf", [schema]):
            yield self._resolved(one)

    def _takes_text(self, schema: dict[str, Any]) -> bool:
        return any(
            (one.get("type") == "string" and "enum" not in one)
            or (one.get("type") == "array" and self._takes_text(one["items"]))
            for one in self._kinds(schema)
        )

    def _is_list(self, schema: dict[str, Any]) -> bool:
        return any(one.get("type") == "array" for one in self._kinds(schema))

    def _takes_map(self, schema: dict[str, Any]) -> bool:
        return any(one.get("type") == "object" and "properties" not in one for one in self._kinds(schema))


def test_no_hostile_string_causes_a_server_error_on_any_route(site: HttpSite) -> None:
    tried: set[str] = set()
    broken: list[str] = []
    for name, method, path, more in Operations(site).requests():
        answer = site.http.request(method, path, **more)
        tried.add(name)
        if answer.status_code >= 500:
            broken.append(f"{answer.status_code} {method} {path} {more}")
    assert broken == []
    assert {"get_job", "search", "add_note", "create_key", "list_documents", "list_jobs", "add_source"} <= tried
    assert len(tried) > 40
    listed = site.http.get("/bases/shelf/documents")
    assert listed.json()["total"] >= 1, listed.text


def test_metadata_that_cannot_be_shown_is_refused(site: HttpSite) -> None:
    def add(metadata: dict[str, Any]) -> httpx2.Response:
        body = json.dumps({"name": "n", "text": "t", "metadata": metadata})
        return site.http.post("/bases/shelf/documents/notes", content=body, headers={"Content-Type": JSON})

    assert refused(add(nested(DEEP)), "metadata.in.in")["subcode"] == "nested_too_deep"
    assert refused(add(nested(33)), "metadata")["subcode"] == "nested_too_deep"
    assert refused(add({"words": "x" * 70_000}), "metadata")["subcode"] == "map_too_large"
    for number in (float("nan"), float("inf"), 10**309):
        assert refused(add({"a": number}), "metadata.a")["subcode"] == "not_json"
    for text, subcode in ((NUL, "nul_character"), (SURROGATE, "lone_surrogate")):
        for metadata in ({"author": text}, {"author": {"names": ["Ada", text]}}, {"author": {text: 1}}):
            assert refused(add(metadata), "metadata.author")["subcode"] == subcode
    assert site.http.get("/bases/shelf/documents").json()["total"] == 0
    assert add(nested(32)).status_code == 202
    shown = site.http.get("/bases/shelf/documents").json()["items"]
    assert [one["metadata"] for one in shown] == [nested(32)]


UNREADABLE = {
    b'{"name": "n", "text": "t", "metadata": ' + b'{"a":' * 5_000 + b"1" + b"}" * 5_001: "nested too deeply",
    b"[" * 200_000: "nested too deeply",
    b'{"name": "n", "text": "\xff"}': "not valid UTF-8",
    b'{"name": "n", "text": "t", "metadata": {"a": ' + b"9" * 5_000 + b"}}": "too many digits",
}


def test_a_body_that_cannot_be_parsed_is_refused_with_the_reason(site: HttpSite) -> None:
    for body, why in UNREADABLE.items():
        for path in ("/bases/shelf/documents/notes", "/bases/shelf/search", "/bases"):
            answer = site.http.post(path, content=body, headers={"Content-Type": JSON})
            assert refused(answer, why)["subcode"] == "unreadable_body"


def test_metadata_in_a_form_is_checked_in_the_same_way(site: HttpSite) -> None:
    def add(metadata: str) -> httpx2.Response:
        files = [("file", ("a.md", b"# A"))]
        return site.http.post("/bases/shelf/documents", files=files, data={"metadata": metadata})

    refused(add(json.dumps(nested(DEEP))), "metadata")
    refused(add(json.dumps({"a": SURROGATE})), "metadata.a")
    refused(add("[" * 100_000), "metadata")


def test_a_refused_change_of_a_base_changes_neither_its_name_nor_its_settings(site: HttpSite) -> None:
    answer = site.http.patch("/bases/shelf", json={"name": "other", "tenant": NUL})
    refused(answer, "tenant")
    assert site.http.patch("/bases/shelf", json={"name": "other", "chunk_size": 1}).status_code == 422
    assert [base["name"] for base in site.http.get("/bases").json()] == ["shelf"]
    changed = site.http.patch("/bases/shelf", json={"name": "other", "chunk_size": 300}).json()
    assert (changed["name"], changed["settings"]["chunk_size"]) == ("other", 300)


DAMAGED = {
    "nested too deeply": ("metadata", json.dumps(nested(DEEP))),
    "not JSON": ("metadata", "{"),
    "not a map": ("metadata", "[1]"),
    "a lone surrogate": ("metadata", '{"a": "\\ud800"}'),
    "a NUL": ("metadata", '{"a": "\\u0000"}'),
    "no number": ("metadata", '{"a": NaN}'),
    "a problem that is not JSON": ("problem", "oops"),
    "a problem without a code": ("problem", "{}"),
    "a time beyond all years": ("changed_at", 2**62),
}


@pytest.mark.parametrize("how", DAMAGED)
def test_a_damaged_row_does_not_break_lists_and_can_be_deleted(site: HttpSite, how: str) -> None:
    column, value = DAMAGED[how]
    good = site.index("good.md", "# Good\n\nThe blue whale eats krill.")
    bad = site.index("bad.md", "# Bad\n\nThe grey whale eats krill.")
    with_author = {"name": "note", "text": "krill", "metadata": {"author": "Ada"}}
    note = site.http.post("/bases/shelf/documents/notes", json=with_author).json()["replies"][0]["document"]
    site.rig.work()
    with site.rig.store.database.engine.begin() as connection:
        connection.exec_driver_sql(
            f"UPDATE library_items SET {column} = '{value}' WHERE id = {bad}"  # noqa: S608 - constants of this test
        )

    listed = {one["id"]: one for one in site.http.get("/bases/shelf/documents").json()["items"]}
    assert listed.keys() == {good, bad, note}
    assert {id_: one["why"] and one["why"]["code"] for id_, one in listed.items() if id_ != bad} == {
        good: None,
        note: None,
    }
    assert listed[bad]["why"]["code"] == "document_damaged"
    statuses = site.http.post("/bases/shelf/documents/status", json={"documents": [good, bad]}).json()
    assert [one["why"] is not None for one in statuses] == [False, True]
    shown = site.http.get(f"/bases/shelf/documents/{bad}")
    assert (shown.status_code, problem(shown)["code"]) == (409, "document_damaged")
    assert column in problem(shown)["detail"]
    assert site.http.get(f"/bases/shelf/documents/{good}").status_code == 200

    def search(**narrowed: Any) -> set[int]:
        answer = site.http.post("/bases/shelf/search", json={"query": "krill", **narrowed})
        return {hit["document"] for hit in answer.json()["hits"]}

    assert search() >= {good, note}
    assert search(metadata={"author": "Ada"}) == {note}
    assert site.http.delete(f"/bases/shelf/documents/{bad}").status_code == 202
    site.rig.work()
    assert site.http.get("/bases/shelf/documents").json()["total"] == 2


def test_the_page_the_cli_and_mcp_list_the_other_documents_beside_a_damaged_one(
    database_url: str, tmp_path: Path, clock: FakeClock
) -> None:
    rig = Rig(database_url, tmp_path / "blobs", clock, indexes=("fulltext",))
    with closing(rig), closing(HttpSite(rig, pages=install_pages)) as site:
        site.index("good.md", "# Good\n\nThe blue whale eats krill.")
        bad = site.index("bad.md", "# Bad\n\nThe grey whale eats krill.")
        with site.rig.store.database.engine.begin() as connection:
            connection.exec_driver_sql(
                f"UPDATE library_items SET metadata = '{json.dumps(nested(DEEP))}' WHERE id = {bad}"  # noqa: S608
            )

        page = site.http.get(f"{site.address}/bases/shelf/documents")
        assert (page.status_code, "good.md" in page.text, "bad.md" in page.text) == (200, True, True)
        assert site.http.get(f"{site.address}/bases/shelf/documents/{bad}").status_code == 409
        for more in ([], ["--json"], ["--tree"]):
            ran = CliRunner().invoke(app, ["--at", site.address, "ls", "--base", "shelf", *more])
            assert (ran.exit_code, "good.md" in ran.stdout, "bad.md" in ran.stdout) == (0, True, True), ran.output
        shown = CliRunner().invoke(app, ["--at", site.address, "show", str(bad), "--base", "shelf", "--json"])
        assert "document_damaged" in shown.output

        async def play() -> None:
            async with Client(make_server(library)) as client:
                found = await client.call_tool("search", {"base": "shelf", "query": "krill"})
                assert {one["name"] for one in (found.structured_content or {})["hits"]} == {"good.md", "bad.md"}
                damaged = await client.call_tool("status", {"base": "shelf", "document": bad})
                assert "document_damaged" in str(damaged.content)

        with Holdfast(site.address) as library:
            assert {one.name for one in library.documents.list("shelf").items} == {"good.md", "bad.md"}
            anyio.run(play)
