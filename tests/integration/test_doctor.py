"""The doctor reports all damage and nothing else, repairs it completely, and does not disturb running work.

The tests cause damage with SQL. Checks in the middle of an operation prove that unfinished work is not reported.
"""
# ruff: noqa: S608 - the tests build their SQL from their own values

from __future__ import annotations

import io
import os
from collections import Counter
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.bases.lifecycle import Bases
from holdfast.bases.removal import LOOK_AGAIN_AFTER
from holdfast.catalog.repository import BaseSettings, ItemKind
from holdfast.db.database import Transaction
from holdfast.doctor import check_items as checking_items
from holdfast.doctor import check_slots as checking_slots
from holdfast.doctor import report as findings
from holdfast.doctor.check_items import FileChecks
from holdfast.doctor.check_rows import RowChecks
from holdfast.doctor.report import NOT_FIXABLE, Issue, Place
from holdfast.documents.remove import DocumentRemover
from holdfast.documents.requests import AddOptions, Upload
from holdfast.engine.problems import format_wait_reason
from holdfast.engine.states import Operation, SlotState, Status
from holdfast.engine.task import Task
from holdfast.indexes.registry import IndexRegistry
from holdfast.llm.offline import OfflineProvider
from holdfast.messages import load_catalogue
from holdfast.settings import Settings
from holdfast.wiring import Library, open_configured_store
from tests.support.audit import Manifest, audit_quiet, audit_standings
from tests.support.foreign_index import OutsideIndex, install
from tests.support.harness import Rig
from tests.support.paid_provider import PaidProvider
from tests.support.question_harness import QuestionRig
from tests.support.question_harness import sections as questioned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from holdfast.catalog.repository import Recipe
    from holdfast.doctor.report import Finding
    from holdfast.indexes.base import Index
    from holdfast.llm.base import Embeddings
    from tests.support.clock import FakeClock

WHALES = "# Whales\n\nThe blue whale eats krill.\n"
STONES = "# Stones\n\nGranite is hard.\n"
SMALL: dict[str, Any] = {"chunk_size": 48, "chunk_overlap": 0}
DAY = timedelta(days=1)
HERE = ("vector", "fulltext", "graph", "outside")


class Counting(OfflineProvider):
    """Records the texts it embeds."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def embed_parts(self, texts: Sequence[str], *more: Any) -> Iterator[Embeddings]:
        self.texts += texts
        return super().embed_parts(texts, *more)


@pytest.fixture
def provider() -> Counting:
    return Counting()


@pytest.fixture
def rig(database_url: str, tmp_path: Path, clock: FakeClock, provider: Counting) -> Iterator[Rig]:
    rig = Rig(database_url, tmp_path / "blobs", clock, provider, indexes=("vector", "fulltext", "graph"), **SMALL)
    yield rig
    rig.close()


def sections(count: int, word: str = "krill") -> str:
    return "\n\n".join(f"## Part {n}\n\nThe {word} of part {n}. " + f"Padding {n}. " * 3 for n in range(count))


def change(rig: Rig, *statements: str) -> None:
    """Run statements that cause damage."""

    def work(tx: Transaction) -> None:
        for statement in statements:
            tx.run_sql(statement)

    rig.store.database.write(work, durable=False)


def read(rig: Rig, statement: str) -> list[tuple[Any, ...]]:
    with rig.store.database.reading() as tx:
        return tx.run_sql(statement)


def found(rig: Rig, **how: Any) -> dict[str, int]:
    """Count the findings by code."""
    return counted(rig.library.doctor.check(**how), "count")


def counted(told: Sequence[Finding], what: str) -> dict[str, int]:
    numbers: Counter[str] = Counter()
    for one in told:
        numbers[one.code] += getattr(one, what)
    return dict(numbers)


def repaired(rig: Rig, **counts: int) -> list[Finding]:
    """Assert that exactly these findings are reported and repaired, and that none is left after the requested work."""
    assert found(rig) == counts
    told = rig.library.doctor.check(fix=True)
    assert counted(told, "fixed") == counted(told, "count") == counts
    assert all(one.fixable for one in told)
    rig.work()
    rig.sweep()
    assert found(rig) == {}
    return told


def torn_out(rig: Rig, name: str) -> list[int]:
    """Delete a document from our own tables but not from the indexes; return its chunks."""
    owner = rig.owner(name)
    item = int(owner.name)
    chunks = [chunk for (chunk,) in read(rig, f"SELECT id FROM library_chunks WHERE owner_id = {owner.id}")]
    ((blob,),) = read(rig, f"SELECT blob FROM library_items WHERE id = {item}")
    change(
        rig,
        f"DELETE FROM library_memo_uses WHERE chunk_id IN (SELECT id FROM library_chunks WHERE owner_id = {owner.id})",
        "DELETE FROM library_memos WHERE id NOT IN (SELECT memo_id FROM library_memo_uses)",
        *(f"DELETE FROM library_{table} WHERE owner_id = {owner.id}" for table in ("lists", "builds", "chunks")),
        f"DELETE FROM slots WHERE owner_id = {owner.id}",
        f"DELETE FROM owners WHERE id = {owner.id}",
        f"DELETE FROM library_items WHERE id = {item}",
    )
    rig.library.blobs.remove([blob])
    rig.store.correct_slot_totals()
    return chunks


def the(rig: Rig, kind: str) -> tuple[Index, Recipe]:
    (recipe,) = rig.library.indexes.recipes(rig.base, kind)
    return rig.library.indexes[kind], recipe


def test_a_healthy_library_has_no_findings(rig: Rig) -> None:
    rig.index("whales.md", WHALES)
    rig.delete("whales.md")
    rig.index("stones.md", sections(6))
    rig.sweep()
    assert rig.library.doctor.check(deep=True) == []
    audit_quiet(rig)


def test_a_finding_has_a_code_a_place_a_count_examples_and_a_message(rig: Rig) -> None:
    rig.index("parts.md", sections(8))
    index, recipe = the(rig, "vector")
    chunks = rig.rows("vector")
    index.drop(recipe, chunks[1:])
    (finding,) = rig.library.doctor.check()
    document = rig.owner("parts.md").name
    assert (finding.code, finding.where, finding.count) == ("row_lacks", "vector of base 'shelf'", 7)
    assert finding.examples == [f"chunk {chunk} of document {document}" for chunk in chunks[1:6]]
    assert (finding.fixable, finding.fixed) == (True, 0)
    assert "7 chunks" in finding.sentence
    assert "vector of base 'shelf'" in finding.sentence
    assert finding.params == {"count": "7", "base": "shelf", "kind": "vector"}
    assert load_catalogue().keys() >= {f"finding.{code}" for code in NOT_FIXABLE}


def test_a_check_alone_repairs_nothing(rig: Rig) -> None:
    rig.index("parts.md", sections(3))
    torn_out(rig, "parts.md")
    rig.index("whales.md", WHALES)
    index, recipe = the(rig, "vector")
    index.drop(recipe, rig.rows("vector")[-1:])
    assert found(rig) == {"row_left": 9, "row_lacks": 1}
    assert found(rig) == {"row_left": 9, "row_lacks": 1}


def test_checks_read_in_bounded_batches_and_skip_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.library.adder.put(rig.base, [Upload(f"{n}.md", f"# Part {n}\n\nKrill {n}.".encode()) for n in range(9)])
    rig.work()
    index, recipe = the(rig, "fulltext")
    index.drop(recipe, rig.rows("fulltext"))
    change(rig, *(f"INSERT INTO library_missing VALUES ({n}, 1, '{{}}')" for n in range(1001, 1012)))
    change(rig, "UPDATE owners SET status = 'failed'")
    largest: list[int] = []
    run = Transaction.run

    def measured(*args: Any, **values: Any) -> Any:
        rows = run(*args, **values)
        largest.append(len(rows))
        return rows

    for module in (findings, checking_items):
        monkeypatch.setattr(module, "LARGEST_BATCH", 4)
    monkeypatch.setattr("holdfast.doctor.check_rows.LARGEST_BATCH", 4)
    monkeypatch.setattr("holdfast.doctor.check_metrics.LARGEST_BATCH", 4)
    monkeypatch.setattr(checking_slots, "OWNERS_PER_BATCH", 2)
    monkeypatch.setattr(Transaction, "run", measured)
    assert found(rig) == {"missing_left": 11, "row_lacks": 9, "status_differs": 9}
    assert max(largest) == 8  # two owners with four slots each
    assert {one.fixed for one in rig.library.doctor.check(fix=True)} == {11, 9}
    monkeypatch.undo()
    rig.work()
    assert found(rig) == {}


@pytest.fixture
def outside(rig: Rig, tmp_path: Path) -> OutsideIndex:
    """Install an index with its own database, and use it together with the others."""
    index = install(rig, tmp_path / "outside.db")
    settings = BaseSettings(indexes=HERE, **SMALL)
    rig.base = rig.library.catalog.create_base("all", settings)
    return index


@pytest.mark.usefixtures("outside")
def test_rows_without_a_chunk_are_removed_from_every_index(rig: Rig) -> None:
    rig.index("stays.md", sections(2, "plankton"))
    stay = {kind: rig.rows(kind) for kind in HERE}
    rig.index("parts.md", sections(3))
    gone = torn_out(rig, "parts.md")
    told = rig.library.doctor.check()
    assert {(one.code, one.where, one.count) for one in told} == {
        ("row_left", f"{kind} of base 'all'", 3) for kind in HERE
    }
    assert {tuple(one.examples) for one in told} == {tuple(f"chunk {chunk}" for chunk in gone)}
    fixed = rig.library.doctor.check(fix=True)
    assert [one.fixed for one in fixed] == [3] * 4
    assert {kind: rig.rows(kind) for kind in HERE} == stay
    assert found(rig) == {}


@pytest.mark.parametrize("kind", HERE)
@pytest.mark.usefixtures("outside")
def test_a_served_chunk_without_a_row_is_rebuilt_and_nothing_else(rig: Rig, provider: Counting, kind: str) -> None:
    rig.index("parts.md", sections(5))
    rig.index("stones.md", STONES)
    index, recipe = the(rig, kind)
    whole = rig.rows(kind)
    before = {slot.kind: slot.built for slot in rig.owner("parts.md").slots}
    index.drop(recipe, whole[1:2])
    provider.texts.clear()
    (told,) = repaired(rig, row_lacks=1)
    assert told.where == f"{kind} of base 'all'"
    assert rig.rows(kind) == whole
    after = {slot.kind: slot.built for slot in rig.owner("parts.md").slots}
    assert {one for one in after if after[one] != before[one]} == {kind}
    assert len(provider.texts) == (1 if kind == "vector" else 0)
    assert rig.owner("stones.md").generation == 1
    audit_quiet(rig)


def test_questions_are_checked_like_any_index_and_repaired_without_new_paid_calls(
    database_url: str, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with PaidProvider() as paid:
        rig = QuestionRig(database_url, tmp_path / "blobs", clock, paid)
        rig.index("parts.md", questioned(3))
        rig.index("torn.md", questioned(2, word="plankton"))
        asked = len(paid.requests)
        index, recipe = the(rig, "questions")
        index.drop(recipe, rig.rows("questions")[:1])
        torn_out(rig, "torn.md")
        repaired(rig, row_left=2, row_lacks=1)
        assert len(rig.rows("questions")) == 3
        assert len(paid.requests) == asked
        rig.close()


def test_an_unavailable_index_is_reported_and_does_not_block_other_checks(
    rig: Rig, outside: OutsideIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.index("parts.md", sections(3))
    torn_out(rig, "parts.md")
    rig.index("stones.md", STONES)
    index, recipe = the(rig, "fulltext")
    index.drop(recipe, rig.rows("fulltext")[-1:])

    def away(*_: object) -> list[int]:
        raise ConnectionError("nobody there")

    with monkeypatch.context() as patch:
        patch.setattr(outside, "scan", away)
        patch.setattr(outside, "absent", away)
        told = rig.library.doctor.check()
    assert {one.code: one.count for one in told if one.where.startswith("outside")} == {"index_away": 1}
    assert [one.examples for one in told if one.code == "index_away"] == [["nobody there"]]
    assert sorted(one.where for one in told if one.code == "row_left") == [
        f"{kind} of base 'all'" for kind in ("fulltext", "graph", "vector")
    ]
    assert [one.where for one in told if one.code == "row_lacks"] == ["fulltext of base 'all'"]
    repaired(rig, row_left=12, row_lacks=1)


def test_a_chunk_recorded_as_missing_is_not_reported_as_a_gap(rig: Rig) -> None:
    rig.index("parts.md", sections(40))
    index, recipe = the(rig, "vector")
    lost = rig.rows("vector")[3]
    index.drop(recipe, [lost])
    slot = rig.slot("parts.md", "vector").id
    change(
        rig,
        f"INSERT INTO library_missing VALUES ({slot}, {lost}, '{{}}')",
        f"UPDATE slots SET missing = 1 WHERE id = {slot}",
        "UPDATE owners SET status = 'degraded'",
    )
    assert found(rig) == {}
    change(rig, "DELETE FROM library_missing")
    assert found(rig) == {"row_lacks": 1}


def test_a_gap_under_repair_is_not_reported_and_one_in_a_failed_base_is_not_fixed(rig: Rig) -> None:
    rig.index("parts.md", sections(3))
    index, recipe = the(rig, "fulltext")
    index.drop(recipe, rig.rows("fulltext"))
    base = rig.base.id
    change(rig, f"""UPDATE library_bases SET problem = '{{"code": "model_unknown"}}' WHERE id = {base}""")
    assert [(one.count, one.fixed) for one in rig.library.doctor.check(fix=True)] == [(3, 0)]
    change(rig, "UPDATE library_bases SET problem = NULL")
    assert [(one.count, one.fixed) for one in rig.library.doctor.check(fix=True)] == [(3, 3)]
    assert rig.owner("parts.md").status is Status.QUEUED
    assert found(rig) == {}


@pytest.mark.parametrize(
    ("damage", "more"),
    [
        ("DELETE FROM library_builds", {}),
        ("DELETE FROM library_lists", {"chunk_left": 3}),
        ("DELETE FROM library_chunks WHERE id = (SELECT min(id) FROM library_chunks)", {"row_left": 3}),
    ],
)
def test_an_incomplete_served_list_is_rebuilt(rig: Rig, damage: str, more: dict[str, int]) -> None:
    rig.index("parts.md", sections(3))
    rig.sweep()
    change(rig, damage)
    assert len(rig.find("krill")) < 3
    told = rig.library.doctor.check()
    assert {one.code for one in told} == {"list_lacks", *more}
    assert {one.code: one.count for one in told if one.code == "list_lacks"} == {"list_lacks": 1}
    rig.library.doctor.check(fix=True)
    rig.work()
    rig.sweep()
    rig.library.doctor.check(fix=True)  # now the list that was served until then is unused
    assert found(rig) == {}
    assert len(rig.find("krill")) == 3
    audit_quiet(rig)


@pytest.mark.parametrize("settled", [0, 1])
def test_unserved_lists_are_removed_even_if_they_are_marked_as_settled(rig: Rig, settled: int) -> None:
    rig.index("whales.md", sections(3))
    rig.index("whales.md", sections(3, "plankton"))
    change(rig, f"UPDATE library_builds SET settled = {settled}")
    repaired(rig, build_left=1)
    assert (rig.count("builds"), rig.count("chunks")) == (1, 3)
    assert len(rig.find("plankton")) == 3


def test_list_entries_without_a_build_are_removed_with_chunks_that_no_other_list_uses(rig: Rig) -> None:
    rig.index("parts.md", sections(3))
    rig.sweep()
    first, *_ = rig.rows("fulltext")
    owner = rig.owner("parts.md").id
    change(
        rig,
        f"INSERT INTO library_lists VALUES ({owner}, {first}, 77, 0, 0, 0, 1)",
        "INSERT INTO library_chunks (id, owner_id, digest, headings, text, opening) "
        f"VALUES (900, {owner}, 'x', '[]', 'stray', 0)",
        f"INSERT INTO library_lists VALUES ({owner}, 900, 77, 1, 0, 0, 1)",
    )
    assert found(rig) == {"list_left": 2}
    # The first repair leaves a chunk that is in no list. A later check of the same run finds it.
    assert found(rig, fix=True) == {"list_left": 2, "chunk_left": 1}
    assert found(rig) == {}
    assert (rig.count("chunks"), len(rig.find("krill"))) == (3, 3)
    audit_quiet(rig)


@pytest.mark.parametrize("damage", ["in no list", "doomed", "nobody's"])
def test_chunks_in_no_list_are_removed_with_their_rows(rig: Rig, damage: str) -> None:
    rig.index("parts.md", sections(3))
    rig.sweep()
    owner = 5_000 if damage == "nobody's" else rig.owner("parts.md").id
    change(
        rig,
        "INSERT INTO library_chunks (id, owner_id, digest, headings, text, opening, doomed) "
        f"VALUES (900, {owner}, 'x', '[]', 'stray', 0, {int(damage == 'doomed')})",
    )
    index, recipe = the(rig, "graph")
    change(rig, f"INSERT INTO library_graph_chunks VALUES ({recipe.id}, 900)")
    assert found(rig) == {"chunk_left": 1}
    rig.library.doctor.check(fix=True)
    assert found(rig) == {}
    assert 900 not in index.scan(recipe, 0, 100)
    assert rig.count("chunks") == 3
    audit_quiet(rig)


def test_a_served_chunk_that_is_marked_for_removal_is_rebuilt(rig: Rig) -> None:
    rig.index("parts.md", sections(3))
    rig.sweep()
    doomed = rig.rows("fulltext")[0]
    change(rig, f"UPDATE library_chunks SET doomed = 1 WHERE id = {doomed}")
    assert found(rig) == {"chunk_left": 1}
    assert found(rig, fix=True) == {"chunk_left": 1, "list_lacks": 1}
    rig.work()
    rig.sweep()
    assert found(rig) == {}
    assert len(rig.find("krill")) == 3
    assert doomed not in rig.rows("fulltext")
    audit_quiet(rig)


def test_records_of_missing_chunks_without_a_slot_are_removed(rig: Rig) -> None:
    rig.index("parts.md", sections(3))
    rig.sweep()
    change(
        rig, "INSERT INTO library_missing VALUES (4711, 1, '{}')", "INSERT INTO library_missing VALUES (4711, 2, '{}')"
    )
    (told,) = repaired(rig, missing_left=2)
    assert told.examples == ["slot 4711 chunk 1", "slot 4711 chunk 2"]
    assert rig.count("missing") == 0


def test_unused_paid_answers_and_uses_without_a_chunk_are_removed_and_others_stay(rig: Rig) -> None:
    rig.index("parts.md", sections(3))
    rig.sweep()
    chunk = rig.rows("fulltext")[0]
    memo = "INSERT INTO library_memos (id, tenant, key, value, joint, created_at) VALUES ({}, '', '{}', '', {}, 0)"
    if rig.store.database.engine.dialect.name == "sqlite":
        memo = memo.replace("'', {}, 0)", "x'00', {}, 0)")
    change(
        rig,
        memo.format(801, "unused", 0),
        memo.format(802, "used", 0),
        memo.format(803, "half used", 0),
        memo.format(804, "of several", 1),
        f"INSERT INTO library_memo_uses VALUES (802, {chunk})",
        f"INSERT INTO library_memo_uses VALUES (803, {chunk})",
        "INSERT INTO library_memo_uses VALUES (803, 999)",
        f"INSERT INTO library_memo_uses VALUES (804, {chunk})",
        "INSERT INTO library_memo_uses VALUES (804, 999)",
    )
    repaired(rig, use_left=2, memo_left=1)
    assert read(rig, "SELECT id FROM library_memos ORDER BY id") == [(802,), (803,)]
    assert read(rig, "SELECT memo_id, chunk_id FROM library_memo_uses ORDER BY 1") == [(802, chunk), (803, chunk)]


def orphan(rig: Rig, clock: FakeClock, old: timedelta) -> str:
    """Write a file as an upload does that is killed before it writes its row."""
    with rig.library.blobs.write_batch() as put:
        name = put(io.BytesIO(b"nobody's")).name
    at = clock.now() / 1_000_000 - old.total_seconds()
    os.utime(rig.path(name), (at, at))
    return name


def test_orphan_files_are_removed_at_any_age_unless_an_upload_is_writing_them(rig: Rig, clock: FakeClock) -> None:
    rig.index("whales.md", WHALES)
    young, old = orphan(rig, clock, timedelta()), orphan(rig, clock, 2 * DAY)
    (rig.folder / "half.part").write_bytes(b"half")
    recorded = rig.library.file_records.record(1)
    (rig.folder / f"{recorded.next_id()}.part").write_bytes(b"an upload writes this")
    told = repaired(rig, file_left=2, file_unfinished=1)
    assert [sorted(one.examples) for one in told] == [sorted([young, old]), ["half.part"]]
    assert sorted([*Manifest(rig).blobs, f"{recorded.ids[0]}.part"]) == sorted(
        path.name for path in rig.folder.rglob("*") if path.is_file()
    )


def test_foreign_files_are_reported_and_not_removed(rig: Rig) -> None:
    rig.index("whales.md", WHALES)
    (blob,) = Manifest(rig).blobs
    other = "1" if blob.startswith("0") else "0"
    (rig.folder / other).mkdir()
    strays = ["a folder", "stray.bin", f"{blob[0]}/{blob}.bak", f"{other}/{blob}"]
    (rig.folder / "a folder").mkdir()
    for name in strays[1:]:
        (rig.folder / name).write_bytes(b"of somebody else")
    (found,) = rig.library.doctor.check()
    assert (found.code, found.count, sorted(found.examples)) == ("file_stray", 4, sorted(strays))
    (found,) = rig.library.doctor.check(fix=True)
    assert (found.fixable, found.fixed) == (False, 0)
    assert all((rig.folder / name).exists() for name in strays)


@pytest.mark.parametrize(
    ("home", "database", "codes"),
    [("home", "db", ["file_stray"]), ("files", "files/db", []), ("home", "files/db", []), ("files/home", "db", [])],
    ids=["apart", "all in one", "database inside", "home inside"],
)
def test_our_own_files_are_not_reported_as_foreign(tmp_path: Path, home: str, database: str, codes: list[str]) -> None:
    """If the folder also contains our other files, the doctor cannot tell foreign files apart and reports none."""
    files = tmp_path / "files"
    (files / "home").mkdir(parents=True) if "files/home" in home else files.mkdir()
    settings = Settings(home=str(tmp_path / home), database=f"sqlite:///{tmp_path / database}", data=str(files))
    with closing(open_configured_store(settings)) as store:
        library = Library(store, settings)
        assert library.doctor.check() == []
        (files / "stray.bin").write_bytes(b"")
        assert [one.code for one in library.doctor.check()] == codes


def test_a_missing_file_is_reported_with_its_document_as_not_fixable(rig: Rig) -> None:
    rig.index("whales.md", WHALES)
    rig.index("stones.md", STONES)
    item = rig.library.items.find(rig.base, "whales.md")
    rig.path(item.blob).unlink()
    for fix in (False, True, False):
        (told,) = rig.library.doctor.check(fix=fix, deep=True)
        assert (told.code, told.count, told.fixed, told.fixable) == ("file_lacks", 1, 0, False)
        assert told.examples == [f"item {item.id} 'whales.md'"]
        assert "Add these documents again" in told.sentence
    rig.index("whales.md", WHALES + "Again.\n")
    rig.sweep()
    assert found(rig, deep=True) == {}


def test_a_file_with_changed_content_is_reported_only_by_a_deep_check(rig: Rig) -> None:
    rig.index("whales.md", WHALES)
    rig.index("stones.md", STONES)
    item = rig.library.items.find(rig.base, "stones.md")
    path = rig.path(item.blob)
    path.write_bytes(path.read_bytes().replace(b"hard", b"soft"))
    assert found(rig) == {}
    (told,) = rig.library.doctor.check(deep=True, fix=True)
    assert (told.code, told.examples, told.fixed) == ("file_damaged", [f"item {item.id} 'stones.md'"], 0)
    assert not told.fixable


def test_a_hidden_item_without_a_requested_clean_up_is_cleaned_up(rig: Rig) -> None:
    rig.index("whales.md", WHALES)
    rig.index("stones.md", STONES)
    change(rig, "UPDATE library_items SET deleting = 1 WHERE name = 'whales.md'")
    repaired(rig, delete_unasked=1)
    assert (rig.count("items"), rig.count("owners"), rig.count("chunks")) == (1, 1, 1)
    audit_quiet(rig)


def test_an_unfinished_delete_is_completed_and_its_file_removed(rig: Rig) -> None:
    rig.library.adder.add(rig.base, [Upload("later.md", WHALES.encode())], AddOptions(index=False))
    change(rig, "UPDATE library_items SET deleting = 1")
    repaired(rig, delete_unfinished=1)
    assert (rig.count("items"), [path for path in rig.folder.rglob("*") if path.is_file()]) == (0, [])


def test_slots_of_a_missing_document_are_deleted_with_their_rows(rig: Rig) -> None:
    rig.index("whales.md", WHALES)
    rig.index("stones.md", STONES)
    item = rig.library.items.find(rig.base, "whales.md")
    change(rig, f"DELETE FROM library_items WHERE id = {item.id}")
    rig.library.blobs.remove([item.blob or ""])
    (told,) = repaired(rig, slots_left=1)
    assert told.examples == [f"owner {item.id}"]
    assert (rig.count("owners"), rig.count("chunks"), len(rig.rows("vector"))) == (1, 1, 1)
    audit_quiet(rig)


def test_unindexed_documents_are_indexed_in_a_base_with_auto_index(rig: Rig) -> None:
    rig.library.adder.add(rig.base, [Upload("whales.md", WHALES.encode())], AddOptions(index=False))
    rig.library.adder.add(rig.base, [Upload("empty", kind=ItemKind.DIRECTORY)], AddOptions(index=False))
    by_hand = rig.library.catalog.create_base("by hand", BaseSettings(auto_index=False))
    rig.library.adder.add(by_hand, [Upload("stones.md", STONES.encode())])
    (told,) = repaired(rig, not_asked=1)
    assert told.where == "base 'shelf'"
    assert rig.owner("whales.md").status is Status.SUCCESS
    assert rig.count("owners") == 1


def test_a_wrong_status_is_recalculated_and_an_owner_without_slots_is_removed(rig: Rig) -> None:
    rig.index("whales.md", WHALES)
    rig.index("stones.md", STONES)
    change(
        rig,
        "UPDATE owners SET status = 'failed' WHERE id = (SELECT min(id) FROM owners)",
        "INSERT INTO owners (base, owner, generation, status, created_at) VALUES ('guarded', 'x', 1, 'success', 0)",
    )
    told = rig.library.doctor.check()
    assert [(one.code, one.where, one.count) for one in told] == [
        ("status_differs", "base 'shelf'", 1),
        ("status_differs", "base guarded", 1),
    ]
    assert [one.fixed for one in rig.library.doctor.check(fix=True)] == [1, 1]
    assert found(rig) == {}
    assert [status for (status,) in read(rig, "SELECT status FROM owners")] == ["success", "success"]


@pytest.mark.parametrize("wrong", [1, 7])
def test_a_job_with_a_wrong_count_is_corrected_and_ends_once(rig: Rig, wrong: int) -> None:
    rig.put("whales.md", WHALES)
    change(rig, f"UPDATE jobs SET open = {wrong}")
    (told,) = rig.library.doctor.check()
    assert (told.code, told.examples) == ("job_differs", [f"job-1 counts {wrong} open slots and has 4"])
    assert [one.fixed for one in rig.library.doctor.check(fix=True)] == [1]
    assert read(rig, "SELECT open FROM jobs") == [(4,)]
    rig.work()
    assert read(rig, "SELECT open, outcome FROM jobs") == [(0, "success")]
    assert found(rig) == {}


def test_an_open_job_whose_slots_are_finished_ends_with_their_result(rig: Rig) -> None:
    rig.index("whales.md", WHALES)
    change(rig, "UPDATE jobs SET open = 2, outcome = NULL, finished_at = NULL, results = NULL")
    repaired(rig, job_differs=1)
    ((count, outcome, results),) = read(rig, "SELECT open, outcome, results FROM jobs")
    assert (count, outcome) == (0, "success")
    assert '"vector": {"state": "ready"' in results
    assert read(rig, "SELECT count(*) FROM events WHERE type = 'job.success'") == [(2,)]


def test_a_job_that_ended_before_its_slots_is_reopened(rig: Rig) -> None:
    rig.put("whales.md", WHALES)
    change(rig, "UPDATE jobs SET open = 0, outcome = 'failed', finished_at = 1")
    repaired(rig, job_differs=1)
    assert read(rig, "SELECT open, outcome FROM jobs") == [(0, "success")]
    assert rig.owner("whales.md").status is Status.SUCCESS


def test_a_job_whose_owner_no_longer_exists_ends_as_deleted(rig: Rig) -> None:
    rig.put("whales.md", WHALES)
    torn_out(rig, "whales.md")
    repaired(rig, job_differs=1)
    assert read(rig, "SELECT open, outcome FROM jobs") == [(0, "deleted")]


def test_work_that_no_worker_claims_is_reported_as_not_fixable(rig: Rig, clock: FakeClock) -> None:
    rig.put("whales.md", WHALES)
    assert found(rig) == {}
    clock.advance(timedelta(minutes=10))
    (told,) = rig.library.doctor.check(fix=True)
    assert (told.code, told.count, told.fixed, told.fixable) == ("nobody_works", 1, 0, False)
    assert "No worker has claimed anything since" in told.examples[0]
    rig.store.claim_next(("content",), "lost", 1)
    assert found(rig) == {}
    clock.advance(timedelta(minutes=10))
    (told,) = rig.library.doctor.check()
    assert "The lease of lost expired at" in told.examples[0]
    rig.work()
    assert found(rig) == {}


def deleted_and_seen(rig: Rig) -> None:
    """Delete a document and record it as pending for both stages of erasure."""
    if rig.store.database.engine.dialect.name != "sqlite":
        pytest.skip("nothing is counted, and nothing promised")
    rig.index("whales.md", WHALES)
    rig.delete("whales.md")
    rig.work()
    with rig.store.database.writing(durable=True) as tx:
        tx.run_sql("UPDATE erasure_stages SET since = ?", [rig.clock.now()])


def test_an_overdue_overwrite_is_reported_and_carried_out(rig: Rig, clock: FakeClock) -> None:
    deleted_and_seen(rig)
    assert found(rig) == {}
    clock.advance(timedelta(hours=2))
    repaired(rig, not_overwritten=1)
    assert rig.library.erasure.read_state().overwrite is None


def test_an_overdue_compaction_is_reported_with_the_reason(rig: Rig, clock: FakeClock) -> None:
    deleted_and_seen(rig)
    assert rig.library.erasure.overwrite()
    clock.advance(timedelta(hours=23))
    assert found(rig) == {}
    clock.advance(timedelta(hours=1))
    (told,) = rig.library.doctor.check(fix=True)
    assert (told.code, told.count, told.fixed, told.fixable) == ("not_compacted", 1, 0, False)
    assert "no job has been active" in told.examples[0]
    with rig.store.database.writing(durable=True) as tx:
        tx.run_sql("UPDATE erasure_stages SET obstacle = 'too_large' WHERE stage = 'compact'")
    (told,) = rig.library.doctor.check()
    assert "HOLDFAST_COMPACT_LIMIT" in told.examples[0]
    assert rig.library.erasure.run_now() == (None, None)
    assert found(rig) == {}


def checked(rig: Rig, patch: pytest.MonkeyPatch, work: Callable[[], object]) -> int:
    """Run `work` with a check at each checkpoint, assert no findings, and return the number of checkpoints."""
    said: list[Finding] = []
    times = 0
    go_on = Task.checkpoint

    def look(self: Task, **more: Any) -> None:
        nonlocal times
        times += 1
        said.extend(rig.library.doctor.check(deep=True))
        go_on(self, **more)

    with patch.context() as between:
        between.setattr(Task, "checkpoint", look)
        work()
    assert said == []
    return times


@pytest.mark.usefixtures("outside")
def test_a_check_in_the_middle_of_indexing_changing_and_deleting_finds_nothing(
    rig: Rig, outside: OutsideIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.put("parts.md", sections(6))
    assert checked(rig, monkeypatch, rig.work) >= 6
    assert rig.owner("parts.md").status is Status.SUCCESS
    rig.put("parts.md", sections(7))
    kept: list[Finding] = []
    # This index writes rows before they are served.
    outside.before_write = lambda: kept.extend(rig.library.doctor.check())
    rig.worker.run_next(1)
    assert checked(rig, monkeypatch, lambda: rig.worker.run_next(1)) >= 1
    rig.work()
    assert kept == []
    rig.sweep()
    assert found(rig) == {}
    rig.delete("parts.md")
    assert found(rig) == {}
    assert checked(rig, monkeypatch, rig.work) >= 2
    assert found(rig) == {}
    audit_quiet(rig)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_check_while_rows_of_a_deleted_document_are_removed_finds_nothing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    rig.index("parts.md", sections(4))
    rig.index("stones.md", STONES)
    rig.sweep()
    drop = IndexRegistry.drop
    said: list[dict[str, int]] = []

    def between(self: IndexRegistry, base: str, chunks: Sequence[int]) -> None:
        if when == "after":
            drop(self, base, chunks)
        said.append(found(rig, deep=True))
        if when == "before":
            drop(self, base, chunks)

    monkeypatch.setattr(IndexRegistry, "drop", between)
    rig.delete("parts.md")
    rig.work()
    assert said == [{}]
    audit_quiet(rig)


def test_a_check_between_the_clean_ups_of_two_indexes_finds_nothing(rig: Rig) -> None:
    rig.index("parts.md", sections(4))
    rig.index("stones.md", STONES)
    rig.sweep()
    rig.index("parts.md", sections(4, "plankton"))
    assert found(rig) == {"build_left": 1}  # the sweep has not run yet
    rig.delete("parts.md")
    assert found(rig) == {}  # the clean-up removes it too
    steps = 0
    for kind, indexer in rig.indexers.items():
        rig.worker.indexers = {kind: indexer}
        steps += rig.worker.run_next(1)
        assert found(rig, deep=True) == {}
    assert steps >= 4
    rig.sweep()
    audit_quiet(rig)


def swept(rig: Rig) -> None:
    """Replace the content of the first document and sweep its old rows."""
    rig.index("whales.md", STONES)
    rig.sweep()


@pytest.mark.parametrize("again", [True, False])
def test_a_row_that_is_swept_during_the_check_is_not_reported(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, *, again: bool
) -> None:
    rig.index("whales.md", WHALES)
    without = RowChecks._without_chunk

    def late(self: RowChecks, seen: Sequence[int]) -> list[int]:
        monkeypatch.setattr(RowChecks, "_without_chunk", without)
        swept(rig)
        return without(self, seen)

    monkeypatch.setattr(RowChecks, "_without_chunk", late)
    if not again:  # without the second read the doctor would report the row
        monkeypatch.setattr(RowChecks, "_keep_present", lambda *args: list(args[-1]))
    assert found(rig) == ({} if again else {"row_left": 1})


@pytest.mark.parametrize("kind", ["vector", "fulltext"])
def test_a_chunk_that_is_swept_during_the_check_is_not_reported_as_a_gap(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    rig.index("whales.md", WHALES)
    index = type(rig.library.indexes[kind])
    absent = index.absent
    lacked: list[int] = []

    def late(self: Any, recipe: Recipe, chunks: Sequence[int]) -> list[int]:
        monkeypatch.setattr(index, "absent", absent)
        swept(rig)
        lacked.extend(absent(self, recipe, chunks))
        return lacked

    monkeypatch.setattr(index, "absent", late)
    assert found(rig) == {}
    assert len(lacked) == 1  # the first read did see a gap


def test_an_index_that_is_rebuilt_during_the_check_is_not_reported_as_a_gap(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.index("whales.md", WHALES)
    index = type(rig.library.indexes["vector"])
    absent = index.absent
    lacked: list[int] = []

    def late(self: Any, recipe: Recipe, chunks: Sequence[int]) -> list[int]:
        monkeypatch.setattr(index, "absent", absent)
        self.drop(recipe, chunks)
        lacked.extend(absent(self, recipe, chunks))
        rig.ask("whales.md", Operation.FORCE)
        rig.work()
        return lacked

    monkeypatch.setattr(index, "absent", late)
    assert "row_lacks" not in found(rig)
    assert len(lacked) == 1
    assert rig.slot("whales.md", "vector").state is SlotState.READY


@pytest.mark.parametrize("deep", [False, True])
def test_a_file_that_is_replaced_or_deleted_during_the_check_is_not_reported(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, *, deep: bool
) -> None:
    rig.index("whales.md", WHALES)
    rig.index("stones.md", STONES)
    name = "_find_damaged" if deep else "_find_missing"
    look = getattr(FileChecks, name)
    wrong: list[Any] = []

    def late(self: FileChecks, items: list[Any]) -> list[Any]:
        if not wrong:
            rig.put("whales.md", WHALES + "More.\n")
            rig.work()
            stones = rig.library.items.find(rig.base, "stones.md")
            change(rig, f"UPDATE library_items SET deleting = 1 WHERE id = {stones.id}")
            rig.library.blobs.remove([stones.blob or ""])  # a clean-up deletes the row last
        wrong.extend(items if deep else look(self, items))
        return items if deep else look(self, items)

    monkeypatch.setattr(FileChecks, name, late)
    codes = {one.code for one in rig.library.doctor.check(deep=deep)}
    assert not codes & {"file_lacks", "file_damaged", "file_left"}
    assert {item.name for item in wrong} == {"whales.md", "stones.md"}  # the first read did see both


def test_a_check_in_the_middle_of_deleting_a_base_finds_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.index("whales.md", WHALES)
    take_down = Bases.hide_and_request_clean_up
    said: list[dict[str, int]] = []

    def between(self: Bases, *more: Any) -> int:
        done = take_down(self, *more)
        said.append(found(rig))
        return done

    monkeypatch.setattr(Bases, "hide_and_request_clean_up", between)
    rig.library.bases.delete(rig.base)
    assert found(rig) == {}
    rig.worker.run_next(1)
    assert said == [{}, {}, {}]  # after hiding, after requesting the clean-up, and when nothing is left to do
    while rig.worker.run_next(1):
        assert found(rig) == {}
    rig.clock.advance(LOOK_AGAIN_AFTER)
    rig.work()
    assert rig.count("items") == rig.count("owners") == 0


def test_a_large_delete_that_is_still_requesting_clean_ups_is_not_reported(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.index("whales.md", WHALES)
    change(rig, "UPDATE library_items SET deleting = 1")
    owners_left = DocumentRemover.list_unrequested_owners
    asked: list[int] = []

    def late(self: DocumentRemover, limit: int = 500) -> Any:
        rows = owners_left(self, limit)
        if not asked:
            asked.append(0)
            asked[0] = rig.library.remover.continue_deletes(500) + rig.library.operations.refresh_due(500)
        return rows

    monkeypatch.setattr(DocumentRemover, "list_unrequested_owners", late)
    assert found(rig) == {}
    assert asked == [1]


def test_wrong_list_entries_of_items_are_reported_and_corrected(rig: Rig) -> None:
    for name in ("a.md", "b.md", "c.md", "d.md", "gone.md"):
        rig.index(name, f"# {name}\n\nText of {name}.\n")
    rig.delete("gone.md")
    a, b, c, d = (rig.library.items.find(rig.base, f"{letter}.md").id for letter in "abcd")
    listed = "INSERT INTO library_standings (item_id, base_id, parent_id, container, problem)"
    change(
        rig,
        f"UPDATE library_standings SET document = 'failed' WHERE item_id = {a}",
        f"UPDATE library_standings SET served = 0 WHERE item_id = {b}",
        f"UPDATE library_standings SET source = 'queued', parent_id = 7 WHERE item_id = {c}",
        f"DELETE FROM library_standings WHERE item_id = {d}",
        f"{listed} SELECT id, base_id, 0, 0, 0 FROM library_items WHERE name = 'gone.md'",
        f"{listed} VALUES (900, {rig.base.id}, 0, 0, 0)",
    )
    (told,) = rig.library.doctor.check(fix=True)
    assert (told.code, told.count, told.fixed) == ("standing_differs", 6, 6)
    audit_standings(rig)
    assert found(rig) == {}
    rig.work()
    rig.sweep()
    while rig.library.sweep(100):
        rig.work()
    audit_quiet(rig)


def test_a_repair_checks_again_and_changes_nothing_that_is_correct_by_then(rig: Rig) -> None:
    rig.index("parts.md", sections(3))
    rig.sweep()
    owner, slot = rig.owner("parts.md"), rig.slot("parts.md", "vector").id
    (build, chunk), *_ = read(rig, "SELECT build, chunk_id FROM library_lists ORDER BY chunk_id")
    memo = "x'00'" if rig.store.database.engine.dialect.name == "sqlite" else "''"
    change(
        rig,
        f"INSERT INTO library_missing VALUES ({slot}, {chunk}, '{{}}')",
        f"INSERT INTO library_memos (id, tenant, key, value, created_at) VALUES (801, '', 'used', {memo}, 0)",
        f"INSERT INTO library_memo_uses VALUES (801, {chunk})",
    )
    ((blob,),) = read(rig, "SELECT blob FROM library_items")
    keys: dict[str, Any] = {
        "build_left": (owner.id, build),
        "list_left": (owner.id, chunk, build),
        "chunk_left": (chunk, owner.id),
        "missing_left": (slot, chunk),
        "memo_left": (801,),
        "file_left": blob,
        "status_differs": owner.id,
        "job_differs": owner.id,
        "standing_differs": int(owner.name),
    }
    tables = (
        "builds",
        "lists",
        "chunks",
        "missing",
        "memos",
        "memo_uses",
        "items",
        "owners",
        "slots",
        "jobs",
        "standings",
    )
    before = {table: rig.count(table) for table in tables}
    checks = {check.code: check for check in rig.library.doctor._checks(deep=False)}
    for code, key in keys.items():
        checks[code].repair([Issue(Place(""), "", key)])
        assert {table: rig.count(table) for table in tables} == before, code
    assert rig.path(blob).exists()
    change(rig, "DELETE FROM library_missing")
    audit_quiet(rig)


def test_waiting_lists_only_unfinished_documents_with_the_reason(rig: Rig, clock: FakeClock) -> None:
    rig.index("stones.md", STONES)
    rig.put("whales.md", WHALES)
    other = rig.library.catalog.create_base("other", BaseSettings())
    rig.library.adder.put(other, [Upload("elsewhere.md", b"text")])
    doctor = rig.library.doctor
    (one,) = doctor.waiting(rig.base)
    assert (one.name, one.item, one.listed.state) == ("whales.md", int(rig.owner("whales.md").name), "queued")
    assert {reason.key.kind: reason.code for reason in one.reasons} == {
        "content": "next", "vector": "blocked", "fulltext": "blocked", "graph": "blocked",
    }  # fmt: skip
    rig.store.pause(rig.base.key)
    (one,) = doctor.waiting(rig.base)
    assert "has been paused since" in format_wait_reason(one.reasons[0], "shelf")
    rig.store.resume(rig.base.key)
    rig.work()
    rig.delete("stones.md")
    (one,) = doctor.waiting(rig.base)
    assert {reason.code for reason in one.reasons} == {"deleting"}
    rig.work()
    assert list(doctor.waiting(rig.base)) == []


def test_waiting_reads_all_unfinished_documents_in_pages(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.library.adder.put(rig.base, [Upload(f"{n}.md", str(n).encode()) for n in range(7)])
    monkeypatch.setattr("holdfast.doctor.doctor.JOBS_PER_PAGE", 3)
    assert [one.name for one in rig.library.doctor.waiting(rig.base)] == [f"{n}.md" for n in range(7)]
