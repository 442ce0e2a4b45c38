"""Secrets in addresses appear in no log, no list of settings and no table."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import zipfile
from base64 import b64encode
from typing import TYPE_CHECKING

import pytest

from holdfast.bases import archive_writer as packing
from holdfast.catalog.repository import ItemKind
from holdfast.documents.requests import AddOptions, Upload
from holdfast.documents.source_sync import SourceAccess
from holdfast.engine.store.factory import open_database
from holdfast.errors import BadRequest, BadSettings
from holdfast.llm.openai import Endpoint, OpenAIProvider
from holdfast.logs import HTTP_CLIENT_LOGGER
from holdfast.service.local import LocalService
from holdfast.service.opening import local_caller
from holdfast.sources.address_policy import Reach
from holdfast.url_secrets import MASK
from holdfast.web.site import install_pages
from tests.support.harness import Rig
from tests.support.http_site import HttpSite
from tests.support.meters import Recorder
from tests.support.paid_provider import PaidProvider
from tests.support.processes import ROOT
from tests.support.scripted_site import Site, reply
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.clock import FakeClock

SWORD = "swordfish"

# Logs like a server and its workers, calls a provider once, and logs one line.
SERVE = """
import logging, sys
from holdfast.llm.openai import Endpoint, OpenAIProvider
from holdfast.wiring import configure_logging
from tests.support.meters import Recorder

configure_logging("info")
provider = OpenAIProvider(Endpoint(base_url=sys.argv[1], key="sk", embedding_model="embedder"))
provider.with_meter(Recorder()).embed(["tide"])
provider.close()
try:
    raise ValueError(sys.argv[1])
except ValueError:
    logging.getLogger("holdfast").exception("it failed at %s", sys.argv[1])
"""


@pytest.fixture
def paid() -> Iterator[PaidProvider]:
    with PaidProvider() as provider:
        provider.authorization = "Basic " + b64encode(f"reader:{SWORD}".encode()).decode()
        yield provider


@pytest.fixture
def rig(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Rig]:
    rig = Rig(database_url, tmp_path / "blobs", clock, settings={"webhook_allow": "127.0.0.1"})
    yield rig
    rig.close()


@pytest.fixture
def library(rig: Rig) -> LocalService:
    return LocalService(rig.library, local_caller())


def with_user(url: str) -> str:
    return url.replace("://", f"://reader:{SWORD}@")


def test_a_server_logs_no_provider_calls_and_masks_secrets_in_its_log(paid: PaidProvider) -> None:
    command = [sys.executable, "-c", SERVE, with_user(paid.url)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    assert paid.bill.texts["tide"] == 1
    first, *trace = done.stderr.splitlines()
    assert f"it failed at http://{MASK}@127.0.0.1" in first
    assert "ValueError" in trace[-1]
    assert SWORD not in done.stderr


def test_the_http_client_logs_no_secret_inside_another_application(
    paid: PaidProvider, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    # A command run by an earlier test may have silenced this logger.
    caplog.set_level(logging.DEBUG, HTTP_CLIENT_LOGGER)
    provider = OpenAIProvider(Endpoint(base_url=with_user(paid.url), key="sk", embedding_model="embedder"))
    provider.with_meter(Recorder()).embed(["tide"])
    provider.close()
    assert f"POST http://{MASK}@127.0.0.1" in caplog.text
    assert SWORD not in caplog.text


@pytest.mark.parametrize("kind", ["url", "sitemap"])
@pytest.mark.parametrize(
    ("address", "code"),
    [
        (f"https://reader:{SWORD}@example.org/page", "user_in_address"),
        (f"https://{SWORD}@example.org/page", "user_in_address"),
        (f"https://example.org/page?api-key={SWORD}", "secret_in_address"),
        (f"https://example.org/page?a=1&password={SWORD}", "secret_in_address"),
        (f"https://example.org/page?api%2Dkey={SWORD}", "secret_in_address"),
        (f"https://example.org/page#access_token={SWORD}", "secret_in_address"),
        (f"//reader:{SWORD}@example.org/page", "user_in_address"),
        (f"reader:{SWORD}@example.org/page", "bad_url"),
        (f"http:reader:{SWORD}@example.org/page", "bad_url"),
        (f"ht tp://reader:{SWORD}@example.org/page", "bad_url"),
        (f"https://reader:{SWORD}%40example.org/page", "bad_url"),
    ],
)
def test_a_page_with_a_secret_in_its_address_is_refused_and_not_stored(
    library: LocalService, kind: str, address: str, code: str
) -> None:
    with pytest.raises(BadRequest) as refused:
        getattr(library.documents, kind)("shelf", address)
    assert refused.value.subcode == code
    assert code == "bad_url" or "Nothing was stored" in str(refused.value)
    assert SWORD not in str(refused.value)
    assert SWORD not in str(refused.value.params)
    assert library.documents.list("shelf").items == []


def test_the_name_of_a_page_contains_no_possible_secret(library: LocalService) -> None:
    library.documents.url("shelf", f"https://example.org/page?key={SWORD}")
    (shown,) = library.documents.list("shelf").items
    assert (shown.name, shown.source) == (f"https://example.org/page?key={MASK}",) * 2


def test_the_final_address_of_a_page_is_stored_without_its_secret(rig: Rig, library: LocalService) -> None:
    rig.library.source_policy = SourceAccess(reach=Reach.parse("127.0.0.1"))
    rig.indexers = rig.library.indexers()
    with Site() as web:
        web.says("/page", reply(b"", status=302, Location=f"/moved?token={SWORD}"))
        web.says(f"/moved?token={SWORD}", reply(b"<p>The tide turns.</p>"))
        rig.library.adder.add(rig.base, [Upload("page", kind=ItemKind.URL, source=web.url("/page"))], AddOptions())
        rig.hire("fetcher").run_next(1)
    (shown,) = library.documents.list("shelf").items
    assert shown.metadata["address"] == web.url(f"/moved?token={MASK}")


@pytest.mark.parametrize(
    ("address", "code"),
    [
        (f"http://reader:{SWORD}@127.0.0.1/build", "bad_url"),
        (f"http://127.0.0.1/build?token={SWORD}", "secret_in_address"),
        (f"http://127.0.0.1/build?a=1&api%2Dkey={SWORD}", "secret_in_address"),
    ],
)
def test_a_webhook_with_a_secret_in_its_address_is_refused_and_not_stored(
    library: LocalService, address: str, code: str
) -> None:
    with pytest.raises(BadRequest) as refused:
        library.webhooks.create(address)
    assert refused.value.subcode == code
    assert SWORD not in str(refused.value)
    assert library.webhooks.list() == []


def test_a_webhook_stored_with_a_token_in_its_address_is_shown_without_it(rig: Rig, library: LocalService) -> None:
    library.webhooks.create("http://127.0.0.1/build")
    with rig.store.database.writing(durable=True) as tx:
        tx.run_sql(f"UPDATE webhooks SET url = 'http://127.0.0.1/build?token={SWORD}'")  # noqa: S608 - test data
    assert [one.url for one in library.webhooks.list()] == [f"http://127.0.0.1/build?token={MASK}"]


def test_archives_and_lists_mask_the_secret_of_a_stored_address(rig: Rig, library: LocalService) -> None:
    stored = Upload("page", kind=ItemKind.URL, source=f"https://reader:{SWORD}@example.org/page")
    rig.library.adder.add(rig.base, [stored], AddOptions(index=False))
    (shown,) = library.documents.list("shelf").items
    assert shown.source == f"https://{MASK}@example.org/page"
    archive = io.BytesIO()
    rig.library.archives.export(rig.base, archive)
    with zipfile.ZipFile(archive) as packed:
        assert not [name for name in packed.namelist() if SWORD.encode() in packed.read(name)]


def test_a_secret_in_an_archive_of_an_older_version_is_not_stored(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = Upload("page", kind=ItemKind.URL, source=f"https://example.org/page?token={SWORD}")
    rig.library.adder.add(rig.base, [stored], AddOptions(index=False))
    archive = io.BytesIO()
    monkeypatch.setattr(packing, "mask_secrets", str)  # as in versions that did not mask secrets
    rig.library.archives.export(rig.base, archive)
    rig.library.archives.restore(archive, name="copy")
    with rig.store.database.reading() as tx:
        sources = [source for (source,) in tx.run_sql("SELECT source FROM library_items ORDER BY id")]
    assert sources == [stored.source, f"https://example.org/page?token={MASK}"]


def test_settings_are_shown_without_the_secrets_in_their_addresses(tmp_path: Path) -> None:
    environment = {
        "HOLDFAST_HOME": str(tmp_path),
        "HOLDFAST_EMBEDDING_URL": f"https://example.org/v1?api-key={SWORD}",
        "HOLDFAST_EMBEDDING_MODEL": "m",
        "HOLDFAST_CHAT_URL": f"https://example.org/v1?password={SWORD}",
        "HOLDFAST_CHAT_MODEL": "m",
        "HOLDFAST_DATABASE": f"postgresql+psycopg://me:{SWORD}@db/holdfast",
    }
    command = [sys.executable, "-m", "holdfast.cli", "config", "show", "--json"]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS
    )
    shown = {one["name"]: one["value"] for one in json.loads(done.stdout)}
    assert shown["HOLDFAST_EMBEDDING_URL"] == f"https://example.org/v1?api-key={MASK}"
    assert SWORD not in done.stdout + done.stderr


def test_a_server_shows_its_settings_without_the_secrets_in_their_addresses(rig: Rig) -> None:
    site = HttpSite(
        rig,
        pages=install_pages,
        database=f"postgresql+psycopg://me:{SWORD}@db/holdfast?password={SWORD}",
        embedding_url=f"https://reader:{SWORD}@example.org/v1?api-key={SWORD}",
        embedding_model="m",
        key=SWORD,
        secret_key=SWORD * 4,
    )
    try:
        shown = site.http.get("/about").text
        pages = [site.http.get(f"{site.address}/settings?tab={tab}").text for tab in ("providers", "server")]
    finally:
        site.close()
    assert f"me:{MASK}@db" in shown
    assert SWORD not in shown
    assert not [page for page in pages if SWORD in page or "<html" not in page]


def test_the_error_for_an_invalid_database_address_hides_its_password(clock: FakeClock) -> None:
    with pytest.raises(BadSettings) as refused:
        open_database(f"postgresql//me:{SWORD}@db", clock)
    assert SWORD not in str(refused.value)
