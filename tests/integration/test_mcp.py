"""The official MCP client can use the server in memory, over stdio, and over HTTP."""

from __future__ import annotations

import json
import socket
import sys
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest
import uvicorn
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from holdfast import Holdfast
from holdfast.api.app import ServerState, make_app
from holdfast.api.connections import ConnectionLimits, make_limited_protocol
from holdfast.clock import SystemClock
from holdfast.events.feed import Feed
from holdfast.mcp import HTTP_PATH, make_http_server, make_server
from holdfast.settings import Settings
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

LOOKING = {"list_bases", "search", "read_document", "read_passage", "status"}
CHANGING = {"add_note", "add_url", "retry_document", "delete_document"}


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Holdfast]:
    with Holdfast(tmp_path / "home") as library:
        library.bases.create("sea", indexes=["fulltext"])
        reply = library.documents.note("sea", "Whales", "# Whales\n\nThe blue whale eats krill.")
        library.wait("sea", [reply.document], timeout=PATIENCE_SECONDS)
        yield library


def drive(server: Any, play: Callable[[Client], Awaitable[None]]) -> None:
    """Connect a client to a server and run `play` with it."""

    async def main() -> None:
        async with Client(server) as client:
            await play(client)

    anyio.run(main)


def drive_far(address: str, headers: dict[str, str], play: Callable[[Client], Awaitable[None]]) -> None:
    """Connect a client to a server over HTTP and run `play` with it."""

    async def main() -> None:
        async with (
            httpx2.AsyncClient(headers=headers, trust_env=False) as http,
            Client(streamable_http_client(address, http_client=http)) as client,
        ):
            await play(client)

    anyio.run(main)


async def call(client: Client, name: str, /, **arguments: Any) -> Any:
    answer = await client.call_tool(name, arguments)
    assert not answer.is_error, answer.content
    told = answer.structured_content or {}
    return told.get("result", told)


async def refuse(client: Client, name: str, /, **arguments: Any) -> dict[str, Any]:
    answer = await client.call_tool(name, arguments)
    assert answer.is_error
    told: dict[str, Any] = json.loads(answer.content[0].text.partition(": ")[2] or answer.content[0].text)  # type: ignore[union-attr]
    return told


def test_a_client_finds_and_reads_indexed_documents(library: Holdfast) -> None:
    async def play(client: Client) -> None:
        assert {tool.name for tool in (await client.list_tools()).tools} == LOOKING
        assert await call(client, "list_bases") == [
            {"name": "sea", "status": "ready", "documents": 1, "documents_is_exact": True}
        ]
        found = await call(client, "search", base="sea", query="krill")
        (hit,) = found["hits"]
        assert found["notices"] == []
        passage = await call(client, "read_passage", base="sea", document=hit["document"], chunk=hit["chunk"])
        assert "krill" in passage["text"]
        text = await call(client, "read_document", base="sea", document=hit["document"])
        assert text["text"].startswith("# Whales")
        assert (await call(client, "status", base="sea", document=hit["document"]))["status"] == "success"

    drive(make_server(library), play)


def test_an_error_keeps_its_code_job_and_status(library: Holdfast) -> None:
    async def play(client: Client) -> None:
        assert (await refuse(client, "search", base="none", query="x"))["code"] == "unknown_base"
        note = await call(client, "add_note", base="sea", name="Stones", text="Granite is hard.")
        assert note["verdict"] == "accepted"
        again = await call(client, "add_note", base="sea", name="Stones", text="Another text.")
        assert (again["verdict"], again["reason"], again["document"]) == ("rejected", "name_taken", note["document"])
        assert (await call(client, "delete_document", base="sea", document=note["document"]))["verdict"] == "accepted"
        assert (await refuse(client, "status", base="sea", document=note["document"]))["code"] == "unknown_document"

    server = make_server(library, writes=True)
    drive(server, play)


def test_an_error_has_the_same_code_as_over_http(
    library: Holdfast, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (whales,) = library.documents.list("sea").items
    same: list[tuple[str, dict[str, Any], str, str, dict[str, Any]]] = [
        ("search", {"base": "none", "query": "x"}, "POST", "/bases/none/search", {"query": "x"}),
        ("search", {"base": "sea", "query": "a\0b"}, "POST", "/bases/sea/search", {"query": "a\0b"}),
        ("status", {"base": "sea", "document": 777}, "GET", "/bases/sea/documents/777", {}),
        ("status", {"base": "sea", "document": "x"}, "GET", "/bases/sea/documents/x", {}),
        ("add_note", {"base": "sea", "name": "x"}, "POST", "/bases/sea/documents/notes", {"name": "x"}),
        (
            "retry_document", {"base": "sea", "document": whales.id},
            "POST", f"/bases/sea/documents/{whales.id}:retry", {},
        ),
        ("delete_document", {"base": "sea", "document": 777}, "DELETE", "/bases/sea/documents/777", {}),
        (
            "read_passage", {"base": "sea", "document": whales.id, "chunk": 999},
            "GET", f"/bases/sea/documents/{whales.id}/passages/999", {},
        ),
        (
            "add_url", {"base": "sea", "address": "http://ann:secret@site.example/"},
            "POST", "/bases/sea/documents/sources", {"kind": "url", "source": "http://ann:secret@site.example/"},
        ),
    ]  # fmt: skip
    assert library.local is not None
    served = ServerState(
        library=library.local,
        settings=Settings(),
        feed=Feed(library.local.event_log, SystemClock()),
        needs_key=False,
    )
    codes: list[str] = []

    async def play(client: Client) -> None:
        for tool, arguments, method, path, body in same:
            told = await refuse(client, tool, **arguments)
            answer = http.request(method, f"/api/v1{path}", json=body or None)
            assert (told["code"], told.get("subcode")) == (answer.json()["code"], answer.json()["subcode"]), path
            assert told["message"]
            codes.append(told["code"])
        monkeypatch.setattr(library.asking, "search", lambda *_, **__: 1 // 0)
        assert await refuse(client, "search", base="sea", query="x") == {
            "code": "internal_error",
            "subcode": "tool_failed",
            "message": "The tool 'search' failed with an unexpected error. The log of the server contains the cause.",
        }

    with (
        serving(uvicorn.Server(uvicorn.Config(make_app(served), log_config=None, access_log=False))) as address,
        httpx2.Client(base_url=address, timeout=PATIENCE_SECONDS, trust_env=False) as http,
    ):
        drive(make_server(library, writes=True), play)
    assert set(codes) == {
        "unknown_base", "bad_request", "unknown_document", "invalid_request", "already_indexed", "chunk_gone",
    }  # fmt: skip
    assert "mcp.failed tool=search" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_tools_that_change_documents_exist_only_if_writes_are_enabled(library: Holdfast) -> None:
    async def names(client: Client) -> None:
        assert {tool.name for tool in (await client.list_tools()).tools} == LOOKING | CHANGING

    drive(make_server(library, writes=True), names)


def test_the_command_serves_a_client_over_stdio(library: Holdfast, tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "holdfast.cli", "mcp"],
        env={"HOLDFAST_HOME": home, "HOLDFAST_WORKERS": "1", "TMPDIR": tempfile.gettempdir()},
    )

    async def play(client: Client) -> None:
        (hit,) = (await call(client, "search", base="sea", query="krill"))["hits"]
        assert hit["name"] == "Whales"

    drive(stdio_client(command, errlog=sys.stderr), play)


def test_over_http_the_key_decides_which_bases_and_tools_a_client_may_use(library: Holdfast) -> None:
    library.bases.create("secret", indexes=["fulltext"])
    reader = library.keys.create("reader", "read", bases=["sea"])
    with serving(make_http_server(make_server(library, writes=True))) as host:
        address = host + HTTP_PATH

        async def play(client: Client) -> None:
            assert [base["name"] for base in await call(client, "list_bases")] == ["sea"]
            assert (await refuse(client, "search", base="secret", query="x"))["code"] == "unknown_base"
            assert (await refuse(client, "add_note", base="sea", name="n", text="t"))["code"] == "forbidden"

        async def refused(client: Client) -> None:
            assert (await refuse(client, "list_bases"))["code"] == "unauthorized"

        drive_far(address, {"Authorization": f"Bearer {reader.secret}"}, play)
        drive_far(address, {}, refused)
        evil = httpx2.post(address, headers={"Host": "evil.example"}, json={}, trust_env=False)
        assert evil.status_code == 421


def test_over_http_an_incomplete_request_is_closed(library: Holdfast) -> None:
    server = make_server(library)
    limits = make_http_server(server).config.http.limits  # type: ignore[union-attr]
    assert limits == ConnectionLimits.for_process()
    with serving(make_http_server(server, http=make_limited_protocol(replace(limits, head_seconds=0.1)))) as address:
        where = urlsplit(address)
        with socket.create_connection((where.hostname or "", where.port or 0), PATIENCE_SECONDS) as half:
            half.sendall(b"POST /mcp HTTP/1.1\r\nHost: 127")
            assert b"request_too_slow" in half.makefile("rb").read()


@contextmanager
def serving(web: uvicorn.Server) -> Iterator[str]:
    """Serve over HTTP on a free port."""
    web.config.timeout_graceful_shutdown = 1
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=web.run, args=([listening],), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        web.should_exit = True
        thread.join(PATIENCE_SECONDS)
