"""The services of deploy/compose/compose.yaml, run as plain processes: they index, find and delete a document."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest

from tests.support.compose import Topology, image_extras
from tests.support.deployment import VARIABLES
from tests.support.processes import ROOT, until
from tests.support.samples import pdf
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.postgres, pytest.mark.celery, pytest.mark.s3]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with exactly the packages that the image installs."""
    folder = tmp_path_factory.mktemp("image")
    constraints = ROOT / "constraints.txt"
    uv("venv", "--python", sys.executable, folder)
    uv("pip", "install", "--python", folder, "--constraint", constraints, f"{ROOT}[{image_extras()}]")
    return folder / "bin"


def uv(*words: object) -> None:
    command = [str(Path(sys.executable).with_name("uv")), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def topology(tmp_path: Path, programs: Path) -> Iterator[Topology]:
    with Topology(tmp_path, programs, VARIABLES) as topology:
        yield topology


def first_command() -> list[str]:
    """Return the command that docs/deploy.md runs before the first start."""
    (line,) = re.findall(r"^\$ docker compose run --rm web (.+)$", (ROOT / "docs/deploy.md").read_text(), re.MULTILINE)
    return shlex.split(line)


def test_the_services_of_the_compose_file_index_find_and_delete_a_document(topology: Topology) -> None:
    topology.up("database", "bucket")
    key = json.loads(topology.roles["web"].run(*first_command(), "--json"))
    topology.up()
    running = [role for name, role in topology.roles.items() if name != "bucket"]
    for role in running:
        topology.await_healthy(role.name)
    with httpx2.Client(
        base_url=f"http://127.0.0.1:{topology.port('web', '7340')}/api/v1",
        headers={"Authorization": f"Bearer {key['secret']}"},
        timeout=PATIENCE_SECONDS,
        trust_env=False,
    ) as http:
        http.post("/bases", json={"name": "birds"}).raise_for_status()
        heron = pdf("The heron waits in shallow water.")
        added = http.post("/bases/birds/documents", params={"name": "heron.pdf"}, content=heron).raise_for_status()
        path = f"/bases/birds/documents/{added.json()['replies'][0]['document']}"
        until(lambda: http.get(path).json()["status"] == "success", "the document is not indexed")
        found = http.post("/bases/birds/search", json={"query": "heron"}).raise_for_status().json()
        assert [hit["name"] for hit in found["hits"]] == ["heron.pdf"]
        http.delete(path).raise_for_status()
        until(lambda: http.get(path).status_code == 404, "the document is still being deleted")
    for role in running:
        status, _ = role.stop()  # fails after `stop_grace_period`
        assert status == 0, f"{role.name}: {status}"
