"""A channel that fails is named and the others still work: in the HTTP API, library, MCP, CLI and page."""

from __future__ import annotations

import html
from contextlib import closing
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from mcp.client.client import Client
from typer.testing import CliRunner

from holdfast import Holdfast, errors
from holdfast.cli.app import app
from holdfast.llm.openai import Endpoint, OpenAIProvider
from holdfast.mcp import make_server
from holdfast.service.local import LocalService
from holdfast.service.opening import local_caller
from holdfast.service.remote import RemoteService
from holdfast.service.schemas import Mode
from holdfast.web.site import install_pages
from tests.support.harness import Rig
from tests.support.http_site import HttpSite, problem
from tests.support.paid_provider import DOWN, REFUSED, PaidProvider
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.clock import FakeClock

WHALES = "# Whales\n\nThe blue whale eats krill."


@pytest.fixture
def paid() -> Iterator[PaidProvider]:
    with PaidProvider() as provider:
        yield provider


@pytest.fixture
def site(database_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider) -> Iterator[HttpSite]:
    """Start a server with a base that has full text and vectors. A paid provider makes the vectors."""
    embedder = OpenAIProvider(Endpoint(base_url=paid.url, key=paid.key, embedding_model=paid.embedding_model))
    rig = Rig(database_url, tmp_path / "blobs", clock, embedder, indexes=("fulltext", "vector"))
    site = HttpSite(rig, pages=install_pages)
    site.index("whales.md", WHALES)
    yield site
    site.close()
    rig.close()


def search(site: HttpSite, query: str = "krill", **more: Any) -> dict[str, Any]:
    answer = site.http.post("/bases/shelf/search", json={"query": query, **more})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def told(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["channel"], one["code"]) for one in found["notices"]]


def test_a_search_works_without_vectors_of_the_wrong_length_and_does_not_cache_them(
    site: HttpSite, paid: PaidProvider
) -> None:
    paid.dimension = 5
    found = search(site)
    assert told(found) == [("vector", "vector_length")]
    assert "5" in found["notices"][0]["message"]
    assert "8" in found["notices"][0]["message"]
    assert [set(hit["channels"]) for hit in found["hits"]] == [{"fulltext"}]
    for mode in Mode:
        answer = site.http.post("/bases/shelf/answers", json={"question": "krill", "mode": mode})
        assert answer.status_code == 200, answer.text
        if mode in (Mode.NAIVE, Mode.MIX):
            assert (told(answer.json()), len(answer.json()["context"])) == ([("vector", "vector_length")], 1)
    streamed = site.http.post("/bases/shelf/answers:stream", json={"question": "krill"}).text
    assert "vector_length" in streamed
    paid.dimension = 8
    for channels in (None, ["vector"]):
        assert told(search(site, channels=channels)) == []


def test_a_query_vector_is_used_only_for_an_index_of_its_length(site: HttpSite, paid: PaidProvider) -> None:
    assert told(search(site)) == []  # the query vector is now cached, with 8 numbers
    paid.dimension = 5
    site.http.post("/bases", json={"name": "newer", "indexes": ["fulltext", "vector"]})
    site.index("seals.md", "# Seals\n\nThe seal eats krill.", "newer")  # a new text, so its vector is not cached
    newer = site.http.post("/bases/newer/search", json={"query": "krill"})
    assert (newer.status_code, told(newer.json())) == (200, [])
    assert told(search(site)) == []  # the older base still uses the cached vector


def test_full_text_search_works_when_the_embedding_provider_is_down_or_refuses(
    site: HttpSite, paid: PaidProvider
) -> None:
    paid.refuses["poison"] = REFUSED
    found = search(site, "krill poison")
    assert ([one for one, _ in told(found)], len(found["hits"])) == (["vector"], 1)
    calls = paid.bill.calls
    assert told(search(site, "krill poison")) == told(found)
    assert paid.bill.calls == calls  # the refusal is cached
    paid.always(DOWN)
    found = search(site)
    assert ([one for one, _ in told(found)], len(found["hits"])) == (["vector"], 1)


def test_a_search_in_which_every_channel_fails_reports_the_reason(site: HttpSite, paid: PaidProvider) -> None:
    paid.dimension = 5
    answer = site.http.post("/bases/shelf/search", json={"query": "krill", "channels": ["vector"]})
    assert (answer.status_code, problem(answer)["code"]) == (503, "search_failed")
    assert "'shelf'" in problem(answer)["detail"]
    assert "vector: The embedding model returns vectors of 5 numbers" in problem(answer)["detail"]
    with pytest.raises(errors.WorkError) as failed:
        LocalService(site.rig.library, local_caller()).asking.search("shelf", "krill", channels=["vector"])
    assert failed.value.code == "search_failed"
    with closing(RemoteService(site.address)) as remote, pytest.raises(errors.HoldfastError) as far:
        remote.asking.search("shelf", "krill", channels=["vector"])
    assert far.value.code == "search_failed"
    assert told(search(site, channels=["fulltext"])) == []


def test_a_base_without_its_embedding_model_is_searched_by_full_text_with_a_notice(
    site: HttpSite, database_url: str, tmp_path: Path, clock: FakeClock
) -> None:
    from holdfast.wiring import Library  # noqa: PLC0415

    library = LocalService(
        Library(site.rig.store, site.served.settings, clock=clock), local_caller()
    )  # another process, without the model
    found = library.asking.search("shelf", "krill")
    assert [(one.channel, one.code, one.params["model"]) for one in found.notices] == [
        ("vector", "embedding_model_gone", "embedder")
    ]
    assert len(found) == 1


@pytest.mark.parametrize("where", ["local", "remote"])
def test_a_result_of_the_library_names_the_failed_channel(site: HttpSite, paid: PaidProvider, where: str) -> None:
    paid.dimension = 5
    with closing(RemoteService(site.address)) as remote:
        library = LocalService(site.rig.library, local_caller()) if where == "local" else remote
        found = library.asking.search("shelf", "krill")
        assert [(one.channel, one.code) for one in found.notices] == [("vector", "vector_length")]
        assert [hit.name for hit in found] == ["whales.md"]
        answer = library.asking.ask("shelf", "krill", mode=Mode.NAIVE)
        assert [(one.channel, one.code) for one in answer.notices] == [("vector", "vector_length")]


def test_the_page_names_the_failed_channel_above_the_hits(site: HttpSite, paid: PaidProvider) -> None:
    paid.dimension = 5
    page = html.unescape(site.http.get(f"{site.address}/bases/shelf/search", params={"q": "krill"}).text)
    assert "The channel “Semantic” was not used: The embedding model returns vectors of 5 numbers" in page
    assert "whales.md" in page
    paid.dimension = 8
    assert "was not used" not in site.http.get(f"{site.address}/bases/shelf/search", params={"q": "krill"}).text


def test_mcp_and_the_cli_name_the_failed_channel(
    tmp_path: Path, paid: PaidProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"HOME": tmp_path / "home", "EMBEDDING_URL": paid.url, "EMBEDDING_KEY": paid.key}
    for name, value in (given | {"EMBEDDING_MODEL": paid.embedding_model}).items():
        monkeypatch.setenv(f"HOLDFAST_{name}", str(value))
    with Holdfast(tmp_path / "home") as library:
        library.bases.create("default")
        note = library.documents.note("default", "Whales", WHALES)
        library.wait("default", [note.document], timeout=PATIENCE_SECONDS)
        paid.dimension = 5

        async def play() -> None:
            async with Client(make_server(library)) as client:
                answer = await client.call_tool("search", {"base": "default", "query": "krill"})
                found = answer.structured_content or {}
                assert [(one["channel"], one["code"]) for one in found["notices"]] == [("vector", "vector_length")]
                assert [one["name"] for one in found["hits"]] == ["Whales"]

        anyio.run(play)
    ran = CliRunner().invoke(app, ["search", "krill"])
    assert ran.exit_code == 0, ran.output
    assert "The channel 'vector' could not be searched: The embedding model returns vectors of 5 numbers" in ran.stderr
    assert "Whales" in ran.stdout
    asked = CliRunner().invoke(app, ["ask", "krill"])
    assert (
        "The channel 'vector' could not be searched: The embedding model returns vectors of 5 numbers" in asked.stderr
    )
    assert asked.exit_code == 0, asked.output
