"""`make test` and `make proof` together run every test exactly once, and each of them starts every server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Collects every test and prints its marks and the servers that it starts.
COLLECT = """
import json, sys
import pytest
from tests.support.selection import SERVERS

class Listing:
    def pytest_collection_finish(self, session):
        self.found = [
            [
                item.nodeid,
                item.get_closest_marker("proof") is not None,
                item.get_closest_marker("smoke") is not None,
                [name for name, starts in SERVERS.items() if starts(item)],
            ]
            for item in session.items
        ]

listing = Listing()
code = pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider"], plugins=[listing])
print()
print(json.dumps(listing.found))
sys.exit(code)
"""


def test_make_test_and_make_proof_select_complementary_tests() -> None:
    selected = re.findall(r"^\t\$\(PYTEST\)(.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert [words.strip() for words in selected] == ['-m "not proof"', "-m proof"]


@pytest.mark.proof
def test_every_server_is_started_in_both_commands() -> None:
    collected = subprocess.run([sys.executable, "-c", COLLECT], cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(collected.stdout.splitlines()[-1])
    assert len(found) > 8000
    for server in ("PostgreSQL", "Valkey", "Celery", "Flower", "SeaweedFS", "nginx", "Chromium", "holdfast serve"):
        chosen = {proof for _, proof, _, servers in found if server in servers}
        assert chosen == {False, True}, server
    assert [name for name, proof, smoke, _ in found if smoke and proof and "postgres" not in name] == []
