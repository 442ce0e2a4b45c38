"""The commands of "More than one machine" in the README, with real servers at the addresses that it names."""

from __future__ import annotations

import re
import shlex
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest

from tests.support.processes import Running, until
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.object_storage import ObjectStorage
    from tests.support.servers import Valkey

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.postgres, pytest.mark.celery]


def read_commands() -> tuple[set[str], list[list[str]]]:
    """Return the settings that the section exports, and the commands that it runs."""
    section = (ROOT / "README.md").read_text("utf-8").split("## More than one machine")[1].split("\n## ")[0]
    lines = [shlex.split(line) for line in re.findall(r"^\$ (.+)$", section, re.MULTILINE)]
    exported = {word.partition("=")[0] for line in lines if line[0] == "export" for word in line[1:]}
    return exported, [line for line in lines if line[0] != "export"]


def test_the_commands_of_the_readme_index_search_and_delete_a_document(
    tmp_path: Path, postgres_url: str, valkey: Valkey, s3: ObjectStorage
) -> None:
    exported, commands = read_commands()
    bucket = s3.create_bucket()
    settings = {
        "HOLDFAST_HOME": tmp_path / "home",
        "HOLDFAST_DATABASE": postgres_url,
        "HOLDFAST_DATA": f"s3://{bucket}/holdfast",
        "HOLDFAST_S3_ENDPOINT": s3.endpoint,
        "HOLDFAST_SCHEDULER": "celery",
        "HOLDFAST_BROKER": valkey.url,
    }
    assert exported == settings.keys() - {"HOLDFAST_HOME"}
    with ExitStack() as running:
        roles = [running.enter_context(start(command, tmp_path, settings)) for command in commands]
        until(lambda: "http://" in roles[0].log.read_text(), "the web server does not start")
        (address,) = re.findall(r"http://\S+", roles[0].log.read_text())
        http = running.enter_context(httpx2.Client(base_url=f"{address}/api/v1", timeout=PATIENCE_SECONDS))
        http.post("/bases", json={"name": "sea"}).raise_for_status()
        added = http.post("/bases/sea/documents", params={"name": "tide.md"}, content=b"# Tide\n\nThe sea rises.")
        document = added.raise_for_status().json()["replies"][0]["document"]
        path = f"/bases/sea/documents/{document}"
        until(lambda: http.get(path).json()["status"] == "success", "the document is not indexed")
        found = http.post("/bases/sea/search", json={"query": "sea"}).raise_for_status().json()
        assert [hit["document"] for hit in found["hits"]] == [document]
        assert len(s3.contents(bucket)) == 1
        http.delete(path).raise_for_status()
        until(lambda: s3.contents(bucket) == [], "the file is still in the bucket")


def start(command: list[str], folder: Path, settings: Mapping[str, object]) -> Running:
    """Start a command of the README in its own process, on a free port."""
    program, *arguments = command
    module = {"holdfast": "holdfast.cli", "celery": "celery"}[program]
    arguments = ["0" if word == "7340" else word for word in arguments]
    log = folder / f"{program}-{arguments[0]}-{time.monotonic_ns()}.log"
    plain = {name.removeprefix("HOLDFAST_").lower(): value for name, value in settings.items()}
    return Running(["-m", module, *arguments], log, plain)
