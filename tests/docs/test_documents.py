"""The documents describe what the code does."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.api.bases import BaseSettingsBody
from holdfast.catalog.repository import BaseSettings
from holdfast.engine.admission import ADMISSION_RULES
from holdfast.engine.states import TRANSITIONS, SlotState
from holdfast.messages import translations_for
from holdfast.settings import ENV_PREFIX, Settings

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


def rows(text: str, columns: int) -> list[list[str]]:
    """Return the cells of all table rows with this number of columns."""
    lines = [line.strip().strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip().replace("`", "") for cell in line] for line in lines if len(line) == columns]


def test_the_documented_transitions_are_those_of_the_code() -> None:
    text = (ROOT / "docs/lifecycle.md").read_text().split("## Every move")[1].split("## Who may")[0]
    told = {
        (verb.strip(), None if before == "—" else before, None if after == "—" else after)
        for before, after, verbs in rows(text, 3)[2:]
        for verb in verbs.split(",")
    }
    assert told == {(str(verb), before and str(before), after and str(after)) for verb, before, after in TRANSITIONS}


def test_the_diagram_shows_only_moves_that_are_allowed() -> None:
    text = (ROOT / "docs/lifecycle.md").read_text().split("```mermaid")[1].split("```")[0]
    arrows = re.findall(r"^\s+(\S+) --> (\S+):", text, re.MULTILINE)
    allowed = {(before or "[*]", after or "[*]") for _, before, after in TRANSITIONS}
    assert arrows
    assert set(arrows) <= allowed


def test_every_state_is_explained() -> None:
    text = (ROOT / "docs/lifecycle.md").read_text().split("## States")[1].split("## Every move")[0]
    assert {cells[0] for cells in rows(text, 2)[2:]} == set(SlotState)


def test_every_reason_for_a_rejection_is_documented() -> None:
    text = (ROOT / "docs/lifecycle.md").read_text()
    for row in ADMISSION_RULES:
        if row.verdict == "rejected":
            assert f"`{row.reason}`" in text


def test_every_setting_is_documented_with_its_default_and_the_meaning_in_the_catalogue() -> None:
    table = rows((ROOT / "docs/settings.md").read_text(), 3)[2:]
    english = translations_for("en").texts
    assert {name: meaning for name, _, meaning in table} == {
        ENV_PREFIX + field.name.upper(): english[f"setting.{field.name}"].replace("`", "") for field in fields(Settings)
    }
    assert Settings.from_environment({name: default for name, default, _ in table}) == Settings()


def test_every_setting_of_a_base_is_documented_and_can_be_set_by_http() -> None:
    text = (ROOT / "docs/bases.md").read_text().split("## Settings")[1].split("\n## ")[0]
    assert [cells[0] for cells in rows(text, 3)[2:]] == [field.name for field in fields(BaseSettings)]
    assert set(BaseSettingsBody.model_fields) == {field.name for field in fields(BaseSettings)}


def test_a_wrong_default_in_the_document_would_be_detected() -> None:
    assert Settings.from_environment({"HOLDFAST_STALL": "44m"}) != Settings()
    assert Settings.from_environment({"HOLDFAST_STALL": "45m"}).stall == timedelta(minutes=45)


def test_the_example_in_the_readme_prints_the_documented_output() -> None:
    said = (ROOT / "README.md").read_text().split("```text\n")[1].split("```")[0]
    ran = subprocess.run(
        [sys.executable, "examples/late_worker.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ran.stdout == said
    assert ran.stderr == ""


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for document in DOCUMENTS:
        text = document.read_text()
        for target in re.findall(r"(?:`|\$ )make ([a-z]+)\b", text):
            assert target in targets, f"{document.name} names make {target}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_between_documents_are_not_broken(document: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
        if "://" not in link:
            assert (document.parent / link).exists(), f"{link} is missing"


def test_every_module_is_listed_in_the_architecture() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    for path in (ROOT / "src/holdfast").rglob("*.py"):
        if path.name != "__init__.py" and "migrations" not in path.parts:
            assert path.name in text, f"{path.name} is not in docs/architecture.md"


def test_decisions_are_numbered_without_gaps() -> None:
    names = sorted(path.name for path in (ROOT / "docs/decisions").glob("*.md"))
    assert [name[:4] for name in names] == [f"{number:04}" for number in range(1, len(names) + 1)]
