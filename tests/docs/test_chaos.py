"""docs/chaos.md lists every kind of fault, with the deployments that have it, and every kind of violation."""

from __future__ import annotations

import re
from pathlib import Path

from tests.chaos.faults import KINDS
from tests.chaos.violations import Kind

TEXT = (Path(__file__).resolve().parents[2] / "docs/chaos.md").read_text("utf-8")
DEPLOYMENTS = {
    "`sqlite`": {"sqlite"},
    "all": set(KINDS),
    "with roles": set(KINDS) - {"sqlite"},
    "with a broker": {"celery-redis", "celery-rabbitmq"},
}


def test_the_page_lists_every_fault_with_its_deployments() -> None:
    (table,) = re.findall(r"\| fault \|.*?\n\n", TEXT, re.DOTALL)
    listed: dict[str, set[str]] = {}
    for line in table.strip().splitlines()[2:]:
        names, _, where = (cell.strip() for cell in line.strip(" |").split("|"))
        listed |= dict.fromkeys(re.findall(r"`(\w+)`", names), DEPLOYMENTS[where])
    actual = {
        kind: {deployment for deployment, has in KINDS.items() if kind in has}
        for kinds in KINDS.values()
        for kind in kinds
    }
    assert listed == actual


def test_the_page_lists_every_violation() -> None:
    (table,) = re.findall(r"\| it checks that \|.*?\n\n", TEXT, re.DOTALL)
    found = {name for line in table.strip().splitlines()[2:] for name in re.findall(r"`(\w+)`", line)}
    assert {kind.value for kind in Kind} == found
