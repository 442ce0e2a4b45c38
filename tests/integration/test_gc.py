"""Garbage collection removes only unused data. Data that is served or being written stays, even with concurrent work.

Each guard is proven twice: with the guard nothing is lost, and without it data is lost.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.catalog import chunk_lists, chunk_statements
from holdfast.catalog.chunk_lists import ChunkBatch, ChunkDraft, ChunkLists, TextFacts, number_chunks
from holdfast.db.database import Transaction
from holdfast.documents.requests import Upload
from holdfast.engine.slot import BuildResult
from holdfast.engine.states import Operation, Status
from holdfast.engine.store.base import Completion
from holdfast.errors import StoreUnavailable
from holdfast.indexes import gc, gc_statements
from holdfast.indexes.fulltext.index import FulltextIndex
from holdfast.indexes.gc import ChunkGarbageCollector
from holdfast.llm import paid_cache as memos
from holdfast.llm.paid_cache import AnswerLookup, Charge, PaidAnswer
from tests.support.audit import Manifest, Meanwhile, audit, audit_quiet, changed
from tests.support.harness import Rig

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import ModuleType

    from holdfast.engine.slot import Ticket
    from tests.support.clock import FakeClock

WHALES = "# Whales\n\nThe blue whale eats krill.\n"
STONES = "# Stones\n\nGranite is hard.\n"
SMALL: dict[str, Any] = {"chunk_size": 48, "chunk_overlap": 0}
FACTS = TextFacts(None, (), {}, (), 10)

# Makes the first query return every build as stale, so that only the second, guarded check decides.
TOLD_TOO_MUCH = {
    "SELECT_STALE_BUILDS = select(builds.c.owner_id, builds.c.build).where(_unsettled, BUILD_STALE)": (
        "SELECT_STALE_BUILDS = select(builds.c.owner_id, builds.c.build)"
    )
}
SECOND_LOOK = ".where(BUILD_STALE)"


@pytest.fixture
def rig(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Rig]:
    rig = Rig(database_url, tmp_path / "blobs", clock, indexes=("fulltext",), **SMALL)
    yield rig
    rig.close()


def sections(count: int, word: str = "krill") -> str:
    return "\n\n".join(f"## Part {n}\n\nThe {word} of part {n}. " + f"Padding {n}. " * 3 for n in range(count))


def sweep_once(rig: Rig, patch: pytest.MonkeyPatch, statements: ModuleType) -> None:
    """Run the collector once with changed statements."""
    with patch.context() as other:
        other.setattr(gc, "sql", statements)
        rig.library.indexes.garbage_collector().collect()


def claim(rig: Rig, kind: str = "content") -> Ticket:
    (ticket,) = rig.store.claim_next((kind,), "hand", 1)
    return ticket


def extend(rig: Rig, tx: Transaction, ticket: Ticket, *texts: str) -> None:
    """Write a build as the worker of the slot does."""
    (parts,) = number_chunks(ChunkDraft(0, 0, 1, (), text) for text in texts)
    ChunkLists(rig.store.database).write(tx, [ChunkBatch(ticket.owner, ticket.fence, FACTS, parts)])


def write(rig: Rig, ticket: Ticket, *texts: str) -> None:
    with rig.store.guarded(ticket) as connection:
        extend(rig, rig.store.database.wrap_connection(connection), ticket, *texts)


def complete(rig: Rig, ticket: Ticket) -> None:
    rig.store.complete([Completion(ticket=ticket, built=BuildResult())])


def found(rig: Rig, query: str) -> list[str]:
    return sorted(hit.name for hit in rig.find(query))


def test_a_build_that_is_being_written_stays(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.put("whales.md", WHALES)
    ticket = claim(rig)
    write(rig, ticket, "krill")
    rig.sweep()
    sweep_once(rig, monkeypatch, changed(gc_statements, TOLD_TOO_MUCH))
    assert (rig.count("builds"), rig.count("lists"), rig.count("chunks")) == (1, 1, 1)
    complete(rig, ticket)
    rig.work()
    rig.sweep()
    assert found(rig, "krill") == ["whales.md"]
    audit_quiet(rig)


def test_without_the_second_check_a_build_that_is_being_written_would_be_deleted(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.put("whales.md", WHALES)
    write(rig, claim(rig), "krill")
    unguarded = SECOND_LOOK.replace("BUILD_STALE", "BUILD_STALE.clauses[0]")  # checks only that no slot serves it
    sweep_once(rig, monkeypatch, changed(gc_statements, TOLD_TOO_MUCH | {SECOND_LOOK: unguarded}))
    assert (rig.count("builds"), rig.count("lists")) == (0, 0)


def test_a_served_build_is_kept_even_if_the_first_query_returns_it_as_stale(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.index("whales.md", WHALES)
    sweep_once(rig, monkeypatch, changed(gc_statements, TOLD_TOO_MUCH))
    assert found(rig, "krill") == ["whales.md"]
    audit(rig)
    unguarded = SECOND_LOOK.replace("BUILD_STALE", "BUILD_STALE.clauses[1]")  # checks only that no worker writes it
    sweep_once(rig, monkeypatch, changed(gc_statements, TOLD_TOO_MUCH | {SECOND_LOOK: unguarded}))
    assert found(rig, "krill") == []  # only the guard had kept it


def test_a_build_is_kept_while_one_index_still_serves_it(rig: Rig) -> None:
    rig.index("whales.md", WHALES)
    rig.put("whales.md", STONES)
    rig.worker.run_next(1)  # the content slot serves the new build, the index the old one
    for _ in range(3):
        rig.library.indexes.garbage_collector().collect()
        assert (found(rig, "krill"), found(rig, "granite")) == (["whales.md"], [])
        audit(rig)
    assert rig.ask("whales.md", Operation.CANCEL).accepted
    rig.work()
    rig.sweep()
    assert found(rig, "krill") == ["whales.md"]
    assert rig.count("builds") == 2
    audit_quiet(rig)
    assert rig.ask("whales.md", Operation.RETRY).accepted
    rig.work()
    rig.sweep()
    assert (found(rig, "krill"), found(rig, "granite"), rig.count("builds")) == ([], ["whales.md"], 1)
    audit_quiet(rig)


def test_only_the_list_of_the_stale_build_is_deleted(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.index("whales.md", sections(4))
    rig.index("stones.md", sections(4, "granite"))  # this build has the same number
    rig.index("whales.md", sections(5))  # this build lists the same chunks again
    rig.library.indexes.garbage_collector().collect()
    assert (len(rig.find("krill")), len(rig.find("granite"))) == (5, 4)
    rig.sweep()
    audit_quiet(rig)

    rig.index("whales.md", sections(6))
    outer = "delete(list_entries).where(_in_build, list_entries.c.chunk_id.in_"
    sweep_once(
        rig, monkeypatch, changed(gc_statements, {outer: "delete(list_entries).where(list_entries.c.chunk_id.in_"})
    )
    assert len(rig.find("krill")) < 6  # without the guard, chunks that both builds list are lost


@pytest.mark.parametrize("column", ["owner_id", "build"])
def test_without_owner_and_build_in_the_condition_another_list_would_be_deleted(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    rig.index("whales.md", sections(4))
    rig.index("stones.md", sections(4, "granite"))
    rig.index("whales.md", sections(4, "plankton"))
    other = f"list_entries.c.{column} == int_param('{column}')"
    guarded = "DELETE_SOME_OF_LIST = delete(list_entries).where({0}, list_entries.c.chunk_id.in_(_some_listed({0})))"
    loose = {guarded.format("_in_build"): guarded.format(other)}
    sweep_once(rig, monkeypatch, changed(gc_statements, loose))
    lost = rig.find("granite") if column == "build" else rig.find("plankton")
    assert lost == []


def test_a_chunk_that_another_build_lists_is_not_doomed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.index("whales.md", sections(4))
    rig.index("whales.md", sections(5))
    listed = (
        ", ~select(list_entries.c.build).where(list_entries.c.owner_id == chunks.c.owner_id, "
        "list_entries.c.chunk_id == chunks.c.id).exists()"
    )
    # The first batch only marks chunks as doomed, which shows what it would delete.
    with monkeypatch.context() as other:
        other.setattr(gc, "sql", changed(gc_statements, {listed: ""}))
        other.setattr(ChunkGarbageCollector, "_remove_doomed", lambda *_: 0)
        rig.library.indexes.garbage_collector().collect()
    with rig.store.database.reading() as tx:
        assert tx.run_sql("SELECT count(*) FROM library_chunks WHERE doomed = 1")[0][0] == 4
    rig.store.database.write(lambda tx: tx.run_sql("UPDATE library_chunks SET doomed = 0"), durable=False)

    rig.index("whales.md", sections(6))
    rig.sweep()
    assert len(rig.find("krill")) == 6
    audit_quiet(rig)


def test_a_chunk_that_is_not_doomed_is_not_deleted(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.index("whales.md", sections(4))
    owner = rig.owner("whales.md").id
    standing = [(chunk, owner) for chunk in Manifest(rig).chunks]
    rig.store.database.write(lambda tx: gc._delete_chunks(tx, standing), durable=False)
    assert len(rig.find("krill")) == 4
    with monkeypatch.context() as other:
        other.setattr(
            gc, "sql", changed(gc_statements, {"delete(chunks).where(CHUNK_DOOMED, ": "delete(chunks).where("})
        )
        rig.store.database.write(lambda tx: gc._delete_chunks(tx, standing), durable=False)
    assert rig.find("krill") == []


def test_a_build_of_a_lost_worker_is_deleted(rig: Rig, clock: FakeClock) -> None:
    rig.put("whales.md", WHALES)
    lost = claim(rig)
    write(rig, lost, "half of a text about plankton", "krill")
    clock.advance(timedelta(minutes=3))
    rig.work()
    assert rig.owner("whales.md").status is Status.SUCCESS
    assert rig.count("builds") == 2
    rig.sweep()
    assert rig.count("builds") == 1
    assert (found(rig, "plankton"), found(rig, "krill")) == ([], ["whales.md"])
    audit_quiet(rig)


def test_a_cancelled_build_is_deleted_and_the_previous_one_is_kept(rig: Rig) -> None:
    rig.index("whales.md", WHALES)
    rig.put("whales.md", "something that is given up")
    write(rig, claim(rig), "half of a text about plankton")
    assert rig.ask("whales.md", Operation.CANCEL).accepted
    rig.work()
    rig.sweep()
    assert (rig.count("builds"), found(rig, "krill")) == (1, ["whales.md"])
    assert len(rig.rows("fulltext")) == rig.count("chunks") == 1


def test_a_text_that_returns_after_its_chunk_was_doomed_gets_a_new_chunk(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.index("whales.md", WHALES)
    (old,) = rig.rows("fulltext")
    rig.index("whales.md", STONES)
    doom_only(rig)
    rig.index("whales.md", WHALES)
    (hit,) = rig.find("krill")
    assert hit.chunk != old
    rig.sweep()
    assert old not in rig.rows("fulltext")
    assert found(rig, "krill") == ["whales.md"]
    audit_quiet(rig)

    rig.index("whales.md", STONES)  # now without the guard: a doomed chunk can be listed again
    doom_only(rig)
    with monkeypatch.context() as other:
        other.setattr(
            chunk_lists,
            "sql",
            changed(
                chunk_statements, {"chunks.c.digest == _row.c.digest, CHUNK_LIVE)": "chunks.c.digest == _row.c.digest)"}
            ),
        )
        rig.index("whales.md", WHALES)
    rig.sweep()
    assert found(rig, "krill") == []


def doom_only(rig: Rig) -> None:
    """Run the collector while the index stores are unavailable, so that chunks are only marked as doomed."""

    class Away(Exception):
        pass

    class Rows:
        def drop(self, base: str, chunks: Sequence[int]) -> None:
            raise Away(base, chunks)

    with pytest.raises(Away):
        ChunkGarbageCollector(rig.store.database, Rows()).collect()
    with rig.store.database.reading() as tx:
        assert tx.run_sql("SELECT count(*) FROM library_chunks WHERE doomed = 1")[0][0] > 0


def test_rows_are_deleted_before_their_chunk_so_that_an_unavailable_store_is_swept_later(rig: Rig) -> None:
    rig.index("whales.md", sections(4))
    rig.index("whales.md", sections(4, "plankton"))
    doom_only(rig)
    assert len(rig.rows("fulltext")) == 8
    rig.sweep()
    assert len(rig.rows("fulltext")) == 4
    audit_quiet(rig)


def test_every_index_store_matches_the_lists_when_all_work_is_done(
    database_url: str, tmp_path: Path, clock: FakeClock
) -> None:
    rig = Rig(database_url, tmp_path / "all", clock, **SMALL)  # with all indexes
    rig.library.adder.put(rig.base, [Upload(f"{n}.md", sections(n + 1).encode()) for n in range(6)])
    rig.work()
    rig.library.adder.put(rig.base, [Upload(f"{n}.md", sections(n + 1, "plankton").encode()) for n in range(0, 6, 2)])
    rig.work()
    rig.delete("5.md")
    rig.put("4.md", b"\n \n")  # has no text, so it fails
    rig.put("3.md", sections(9))
    rig.worker.run_next(1)
    rig.ask("3.md", Operation.CANCEL)
    rig.work()
    audit(rig)
    rig.sweep()
    audit_quiet(rig)
    for number in range(5):
        rig.delete(f"{number}.md")
    rig.work()
    rig.sweep()
    audit_quiet(rig)
    assert Manifest(rig).chunks == {}
    assert (rig.rows("vector"), rig.rows("fulltext"), rig.count("missing")) == ([], [], 0)
    rig.close()


def test_a_clean_up_that_failed_before_it_removed_the_file_removes_it_next_time(
    rig: Rig, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.index("whales.md", WHALES)
    rig.delete("whales.md")
    with monkeypatch.context() as patch:

        def fail(*_: object) -> None:
            raise OSError("the disk is away")

        patch.setattr(type(rig.library.blobs), "remove", fail)
        rig.work()
    clock.advance(timedelta(hours=1))
    rig.work()
    assert (rig.count("slots"), rig.count("items")) == (0, 0)
    assert [path for path in rig.folder.rglob("*") if path.is_file()] == []


def test_an_upload_keeps_its_file_if_the_connection_is_lost_after_the_commit(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    admit = rig.store.admit_with

    def lost(write: Any) -> Any:
        admit(write)
        raise StoreUnavailable("The connection was lost after the commit.")

    with monkeypatch.context() as patch:
        patch.setattr(rig.store, "admit_with", lost)
        with pytest.raises(StoreUnavailable):
            rig.put("whales.md", WHALES)
    rig.work()
    assert rig.owner("whales.md").status is Status.SUCCESS


def test_every_transaction_of_a_sweep_is_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.index("whales.md", sections(35))
    rig.index("stones.md", sections(5, "granite"))
    rig.index("whales.md", sections(35, "plankton"))
    rows: dict[int, int] = {}
    kept: list[Transaction] = []  # keeps the objects alive, so that no id() is used twice
    run = Transaction.run

    def counting(self: Transaction, statement: Any, batch: Any = None, **params: Any) -> Any:
        answer = run(self, statement, batch, **params)
        if statement in (gc_statements.DELETE_SOME_OF_LIST, gc_statements.REMOVE_CHUNKS):
            kept.append(self)
            rows[id(self)] = rows.get(id(self), 0) + len(batch or answer)
        return answer

    monkeypatch.setattr(Transaction, "run", counting)
    monkeypatch.setattr(gc, "LARGEST_BATCH", 10)
    sweeper = rig.library.indexes.garbage_collector()
    before = rig.count("chunks")
    while sweeper.collect(limit=10):
        assert before - rig.count("chunks") <= 10
        before = rig.count("chunks")
    assert max(rows.values()) == 10
    assert sum(rows.values()) == 70  # 35 list entries and 35 chunks
    audit_quiet(rig)


def test_removing_a_document_is_done_in_bounded_steps_and_can_be_stopped(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gc, "LARGEST_BATCH", 10)
    rig.index("whales.md", sections(35))
    rig.index("stones.md", sections(5, "granite"))
    rig.delete("whales.md")
    ticket = claim(rig)
    seen: list[int] = []

    class Stop(Exception):
        pass

    def go_on() -> None:
        seen.append(rig.count("chunks") + rig.count("lists"))
        if len(seen) == 7:
            raise Stop

    with pytest.raises(Stop):
        rig.library.indexes.garbage_collector().remove_owners([ticket.owner], go_on)
    assert all(before - after <= 10 for before, after in pairwise(seen))
    assert seen[0] - seen[-1] > 35  # all list entries and some of the chunks are deleted
    rig.library.indexes.garbage_collector().remove_owners([ticket.owner], lambda: None)
    assert (rig.count("chunks"), rig.count("builds"), len(rig.find("granite"))) == (5, 1, 5)


def test_a_text_that_is_listed_again_while_its_old_list_is_deleted_is_not_lost(rig: Rig) -> None:
    rig.index("whales.md", WHALES)
    rig.index("whales.md", STONES)
    (text,) = [
        piece.text for piece in ChunkLists(rig.store.database).read_texts(rig.rows("fulltext")) if "krill" in piece.text
    ]
    rig.put("whales.md", WHALES)
    ticket = claim(rig)
    with rig.store.guarded(ticket) as connection:
        tx = rig.store.database.wrap_connection(connection)
        (parts,) = number_chunks([ChunkDraft(0, 0, len(text), headings(rig, text), text)])
        portion = ChunkBatch(ticket.owner, ticket.fence, FACTS, parts)
        # The chunk of the first build still exists and is listed again.
        ChunkLists(rig.store.database).write(tx, [portion])
        sweep = Meanwhile(rig.store.database, rig.library.indexes.garbage_collector().collect)
        assert sweep.waits
    sweep.end()
    complete(rig, ticket)
    rig.work()
    rig.sweep()
    assert found(rig, "krill") == ["whales.md"]
    audit_quiet(rig)


def headings(rig: Rig, text: str) -> tuple[str, ...]:
    return next(
        piece.headings
        for piece in ChunkLists(rig.store.database).read_texts(rig.rows("fulltext"))
        if piece.text == text
    )


def test_a_build_that_begins_during_a_sweep_of_its_owner_is_swept_later(rig: Rig) -> None:
    rig.index("whales.md", WHALES)
    rig.put("whales.md", STONES)
    ticket = claim(rig)
    with rig.store.guarded(ticket) as connection:
        extend(rig, rig.store.database.wrap_connection(connection), ticket, "granite")
        sweep = Meanwhile(rig.store.database, rig.library.indexes.garbage_collector().collect)
        assert sweep.waits
    sweep.end()
    complete(rig, ticket)
    rig.work()
    rig.sweep()
    assert (rig.count("builds"), found(rig, "krill"), found(rig, "granite")) == (1, [], ["whales.md"])
    audit_quiet(rig)


BILL = Charge(kind="embedding", model="m", texts=1)


def test_a_paid_answer_read_while_its_document_is_deleted_leaves_no_use_behind(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.index("whales.md", WHALES)
    rig.index("stones.md", STONES)
    rig.put("whales.md", sections(1))
    late = claim(rig)  # an old worker that is still running
    first, second = (chunk_of(rig, name) for name in ("whales.md", "stones.md"))
    rig.library.paid_cache.store_answers(
        "", [PaidAnswer(late._replace(owner=rig.owner("stones.md").id), "key", b"value", [second])]
    )
    living = memos._live_chunks
    removal: list[Meanwhile] = []

    def remove() -> None:
        rig.delete("whales.md")
        rig.clock.advance(timedelta(minutes=3))
        rig.work()

    def between(tx: Transaction, uses: Any) -> set[int]:
        seen = living(tx, uses)
        if not removal:
            removal.append(Meanwhile(rig.store.database, remove))
        return seen

    monkeypatch.setattr(memos, "_live_chunks", between)
    assert rig.library.paid_cache.find_answers("", [AnswerLookup(late, "key", [first])], BILL) == {"key": b"value"}
    removal[0].end()
    with rig.store.database.reading() as tx:
        assert tx.run_sql("SELECT chunk_id FROM library_memo_uses") == [(second,)]


def chunk_of(rig: Rig, name: str) -> int:
    slot = rig.slot(name, "fulltext")
    return Manifest(rig).lists[slot.owner_id, slot.source or 0][0]


def test_a_paid_answer_stored_while_its_chunk_is_swept_is_not_left_behind(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.index("whales.md", WHALES)
    old = chunk_of(rig, "whales.md")
    rig.index("whales.md", STONES)
    rig.ask("whales.md", Operation.FORCE)
    late = claim(rig)
    forget = memos.remove_uses
    storing: list[Meanwhile] = []

    def between(tx: Transaction, chunks: Sequence[int]) -> None:
        forget(tx, chunks)
        entry = PaidAnswer(late, "key", b"value", [old])
        storing.append(Meanwhile(rig.store.database, lambda: rig.library.paid_cache.store_answers("", [entry])))

    with monkeypatch.context() as patch:
        patch.setattr(gc, "remove_uses", between)
        rig.library.indexes.garbage_collector().collect()
    assert storing[0].waits
    storing[0].end()
    assert old not in Manifest(rig).chunks
    assert (rig.count("memos"), rig.count("memo_uses")) == (0, 0)


def test_repeated_sweeps_of_all_indexes_remove_a_row_without_a_chunk(rig: Rig) -> None:
    rig.index("whales.md", WHALES)
    kept = rig.rows("fulltext")
    index = rig.library.indexes["fulltext"]
    assert isinstance(index, FulltextIndex)
    (recipe,) = rig.library.indexes.recipes(rig.base, "fulltext")
    late = {987_654: ("", "a late word")}
    rig.store.database.write(lambda tx: index._store.put(tx, recipe.id, late), durable=False)
    assert rig.rows("fulltext") == [*kept, 987_654]
    for _ in range(4):
        rig.library.sweep(500)
    assert rig.rows("fulltext") == kept
    assert found(rig, "krill") == ["whales.md"]
