"""Bases on both databases: create, rename, change settings, roll out, fail, repair, clear and delete."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.bases import rollout as rolling
from holdfast.bases.lifecycle import Bases
from holdfast.bases.removal import LOOK_AGAIN_AFTER
from holdfast.bases.rollout import RolloutIndexer
from holdfast.bases.slots import ROLLOUT
from holdfast.catalog.repository import Base, BaseSettings, BaseStatus, ItemKind
from holdfast.catalog.visibility import confirm_chunks
from holdfast.documents.requests import Action, AddOptions, Upload
from holdfast.documents.selection import lock_open_base
from holdfast.engine.admission import Request, Verdict
from holdfast.engine.dependencies import SlotSpec
from holdfast.engine.problems import describe_fault
from holdfast.engine.states import Operation, SlotState, Status
from holdfast.engine.store.base import LARGEST_BATCH, Release
from holdfast.errors import (
    BadRequest,
    BadSettings,
    BaseFailed,
    NameTaken,
    Permanent,
    StoreUnavailable,
    Transient,
    UnknownBase,
)
from holdfast.indexes.fulltext.index import FulltextIndex
from holdfast.indexes.graph import merging
from holdfast.indexes.graph.index import MERGING_OWNER
from holdfast.indexes.vector.index import open_vector_store
from holdfast.llm.offline import OfflineProvider
from holdfast.llm.paid_cache import Charge
from holdfast.search.search_run import SearchRun, to_fused_hits
from holdfast.settings import Settings
from holdfast.wiring import Library
from tests.support.audit import Meanwhile, audit, audit_quiet
from tests.support.harness import Rig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from holdfast.llm.base import Embeddings
    from tests.support.clock import FakeClock

WHALES = "# Whales\n\nThe blue whale eats krill.\n"
STONES = "# Stones\n\nGranite is hard.\n"
SMALL: dict[str, Any] = {"chunk_size": 48, "chunk_overlap": 0}
CHANNELS = ("vector", "fulltext", "graph")
WORDS = ("krill", "plankton", "shrimp", "squid")


class Embedder(OfflineProvider):
    """The offline embedder under any model name; counts as paid, and fails when a test sets an error."""

    def __init__(self) -> None:
        self.embedding_model = "one"
        self.dimension = None  # type: ignore[assignment]
        self.paid = True
        self.asked: list[str] = []
        self.length: int | None = None
        self.error: Exception | None = None

    def embed_parts(self, texts: Sequence[str], enough: Callable[[], bool] = lambda: False) -> Iterator[Embeddings]:
        self.asked += texts
        if self.error is not None:
            raise self.error
        for part in super().embed_parts(texts, enough):
            yield replace(part, vectors=part.vectors[:, : self.length])


@pytest.fixture
def embedder() -> Embedder:
    return Embedder()


@pytest.fixture
def rig(database_url: str, tmp_path: Path, clock: FakeClock, embedder: Embedder) -> Iterator[Rig]:
    rig = Rig(database_url, tmp_path / "blobs", clock, embedder, **SMALL)
    yield rig
    rig.close()


def bases(rig: Rig) -> Bases:
    return rig.library.bases


def change(rig: Rig, **settings: Any) -> Any:
    """Change settings of the base, store the changed base in the rig, and return the rollout."""
    changed = bases(rig).change(rig.base, replace(bases(rig).read(rig.base).settings, **settings))
    rig.base = changed.base
    return changed.rollout


def put(rig: Rig, *names: str, text: str = WHALES) -> None:
    rig.library.adder.put(rig.base, [Upload(name, f"{text}\nThis is {name}.\n".encode()) for name in names])


def sections(count: int, word: str = "krill") -> str:
    return "\n\n".join(f"## Part {n}\n\nThe {word} of part {n}. " + f"Padding {n}. " * 3 for n in range(count))


def built(rig: Rig, name: str) -> dict[str, int]:
    """Return the generation that each slot of a document serves."""
    return {slot.kind: slot.built for slot in rig.owner(name).slots}


def specs(rig: Rig, name: str) -> dict[str, str]:
    """Return the recipe of each slot of a document."""
    known = {recipe.id: recipe.spec for _, recipe in rig.library.catalog.recipes_of(rig.base.key)}
    return {slot.kind: known[slot.recipe] for slot in rig.owner(name).slots if slot.recipe is not None}


def rollout(rig: Rig) -> Any:
    slot = bases(rig).read_rollout_slot(rig.base)
    assert slot is not None
    return slot


def end_rollout(rig: Rig) -> None:
    """Let the rollout see that the documents it requested are built."""
    rig.clock.advance(rolling.RETRY_AFTER)
    rig.work()


def roll(rig: Rig) -> None:
    """Run only the rollout."""
    worker = rig.hire("roller")
    worker.indexers = {ROLLOUT: rig.indexers[ROLLOUT]}
    while worker.run_next(1):
        pass


def restart(rig: Rig, embedder: Embedder) -> None:
    """Open the same database again, as a new process would."""
    numbers = Settings(database=rig.store.database.engine.url.render_as_string(), data=str(rig.folder))
    rig.library = Library(rig.store, numbers, embedder=embedder, clock=rig.clock)
    rig.indexers = rig.library.indexers()
    rig.worker = rig.hire("worker")


def sweep(rig: Rig) -> None:
    """Run the sweep and the worker until no work is left, but not for ever."""
    for _ in range(20):
        rig.work()
        if not rig.library.sweep(LARGEST_BATCH) and not being_removed(rig):
            break
        rig.clock.advance(LOOK_AGAIN_AFTER)
    rig.work()


def being_removed(rig: Rig) -> bool:
    """Return whether a base is being removed."""
    with rig.store.database.reading() as tx:
        return bool(tx.run_sql("SELECT id FROM slots WHERE kind = 'base'"))


def left_of(rig: Rig, base: Base) -> dict[str, int]:
    """Count the remaining rows of a base in each table."""
    with rig.store.database.reading() as tx:
        key, found = base.key, {}
        for table in ("owners", "library_recipes", "quotas", "pauses"):
            found[table] = tx.run_sql(f"SELECT count(*) FROM {table} WHERE base = '{key}'")[0][0]  # noqa: S608
        found["items"] = tx.run_sql(f"SELECT count(*) FROM library_items WHERE base_id = {base.id}")[0][0]  # noqa: S608
        found["bases"] = tx.run_sql(f"SELECT count(*) FROM library_bases WHERE id = {base.id}")[0][0]  # noqa: S608
    return {table: count for table, count in found.items() if count}


def tables(rig: Rig, recipes: Sequence[int]) -> list[str]:
    """Return the existing tables of the given recipes."""
    wanted = {f"{kind}_{recipe}" for recipe in recipes for kind in CHANNELS}
    sqlite = rig.store.database.engine.dialect.name == "sqlite"
    listed = "SELECT name FROM sqlite_master" if sqlite else "SELECT tablename FROM pg_tables"
    with rig.store.database.reading() as tx:
        return sorted(wanted & {name for (name,) in tx.run_sql(listed)})


def at_once(*works: Callable[[], object]) -> list[object]:
    """Run functions in threads that start together; return each result, or the `NameTaken` it raised."""
    gate = threading.Barrier(len(works))

    def one(work: Callable[[], object]) -> object:
        gate.wait()
        try:
            return work()
        except NameTaken as error:
            return error

    with ThreadPoolExecutor(len(works)) as threads:
        return list(threads.map(one, works))


@pytest.mark.parametrize("name", ["", " ", "x" * 201, "a\0b", "half \ud800"])
def test_an_invalid_name_is_refused(rig: Rig, name: str) -> None:
    with pytest.raises(BadRequest, match="1 to 200") as refused:
        bases(rig).create(name)
    assert refused.value.subcode == "base_name"
    str(refused.value).encode()  # broken characters of the name are replaced
    with pytest.raises(BadRequest, match="1 to 200"):
        bases(rig).rename(rig.base, name)
    with pytest.raises(UnknownBase):
        rig.library.catalog.find_base(name)
    assert [base.name for base in rig.library.catalog.bases()] == ["shelf"]


def test_bases_are_created_listed_and_found_by_their_names(rig: Rig) -> None:
    made = bases(rig).create("a" * 200, BaseSettings(indexes=("fulltext",)))
    assert [base.name for base in rig.library.catalog.bases()] == ["a" * 200, "shelf"]
    assert rig.library.catalog.find_base("a" * 200) == made
    assert (made.settings.indexes, made.status) == (("fulltext",), BaseStatus.READY)
    with pytest.raises(UnknownBase, match="nowhere"):
        rig.library.catalog.find_base("nowhere")


def test_a_name_that_is_taken_is_refused(rig: Rig) -> None:
    other = bases(rig).create("other")
    with pytest.raises(NameTaken, match="shelf"):
        bases(rig).create("shelf")
    with pytest.raises(NameTaken, match="shelf"):
        bases(rig).rename(other, "shelf")
    assert bases(rig).rename(other, "other").name == "other"  # a base may keep its own name


def test_only_one_of_many_concurrent_requests_for_a_name_gets_it(rig: Rig) -> None:
    answers = at_once(*[lambda: bases(rig).create("wanted")] * 4)
    assert sorted(type(answer).__name__ for answer in answers) == ["Base", "NameTaken", "NameTaken", "NameTaken"]
    others = [bases(rig).create(f"other {n}") for n in range(3)]
    renamed = at_once(*[lambda base=base: bases(rig).rename(base, "one") for base in others])
    assert sorted(type(answer).__name__ for answer in renamed) == ["Base", "NameTaken", "NameTaken"]


def test_a_renamed_base_keeps_its_documents_and_its_old_name_is_free(rig: Rig) -> None:
    rig.index("whales.md", WHALES)
    rig.base = bases(rig).rename(rig.base, "archive")
    assert [hit.name for hit in rig.find("krill")] == ["whales.md"]
    assert bases(rig).create("shelf").id != rig.base.id


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"chunk_size": 4}, "A chunk size of 4 tokens is too small"),
        ({"chunk_size": 48, "chunk_overlap": 40}, "cannot overlap by 40 tokens"),
        ({"indexes": ("fulltext", "rumours")}, "no index 'rumours'"),
    ],
)
def test_unusable_settings_are_refused(rig: Rig, settings: dict[str, Any], why: str) -> None:
    with pytest.raises(BadSettings, match=why):
        bases(rig).create("other", BaseSettings(**settings))
    with pytest.raises(BadSettings, match=why):
        change(rig, **settings)
    assert [base.name for base in rig.library.catalog.bases()] == ["shelf"]
    assert bases(rig).read(rig.base).settings == rig.base.settings


def test_settings_of_a_newer_version_are_read_and_kept(rig: Rig) -> None:
    stored = json.dumps({**json.loads(rig.base.settings.to_json()), "moods": ["calm"]})
    rig.store.database.write(lambda tx: tx.run_sql(f"UPDATE library_bases SET settings = '{stored}'"), durable=True)  # noqa: S608
    assert rig.library.catalog.find_base("shelf").settings == rig.base.settings
    change(rig, auto_index=False)
    with rig.store.database.reading() as tx:
        written = json.loads(tx.run_sql("SELECT settings FROM library_bases")[0][0])
    assert (written["moods"], written["auto_index"]) == (["calm"], False)


def test_an_index_that_cannot_run_here_is_reported_as_not_enabled(rig: Rig) -> None:
    base = bases(rig).create("other", BaseSettings(indexes=("fulltext", "questions")))
    assert list(bases(rig).not_enabled(base)) == ["questions"]


def test_settings_that_affect_no_index_start_no_rollout(rig: Rig) -> None:
    rig.index("whales.md", WHALES)
    assert change(rig, auto_index=False, tenant="us", budget_tokens=1000) is None
    assert (bases(rig).read(rig.base).settings.tenant, rig.worker.run_next(9)) == ("us", 0)


def test_adding_an_index_builds_only_that_slot_for_every_document(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rolling, "DOCUMENTS_PER_TRANSACTION", 2)
    put(rig, "a.md", "b.md", "c.md", "d.md", "e.md")
    rig.work()
    before, asked = built(rig, "a.md"), len(rig.library.tools.embedder._provider._provider.asked)  # type: ignore[attr-defined]
    assert change(rig, indexes=("vector", "fulltext", "graph")).accepted
    rig.work()
    for name in ("a.md", "b.md", "c.md", "d.md", "e.md"):
        assert built(rig, name) == {**before, "graph": 2}
        assert rig.owner(name).status is Status.SUCCESS
    assert len(rig.library.tools.embedder._provider._provider.asked) == asked  # type: ignore[attr-defined]
    assert rollout(rig).state is SlotState.WAITING
    end_rollout(rig)
    assert rollout(rig).state is SlotState.READY
    sweep(rig)
    audit_quiet(rig)


def test_an_index_that_was_built_later_hides_no_hit_of_the_others(rig: Rig) -> None:
    parts = "\n\n".join(f"## Part {n}\n\nThe Blue Whale eats {word}." for n, word in enumerate(WORDS))
    change(rig, indexes=("fulltext",))
    rig.index("parts.md", parts)
    before = {hit.chunk for hit in rig.library.searcher.search(rig.base, " ".join(WORDS), 99)}
    change(rig, indexes=("fulltext", "graph"))
    rig.work()
    look = rig.library.searcher.search(rig.base, f"Blue Whale {' '.join(WORDS)}", 99)
    assert {hit.chunk for hit in look} == before
    assert len(before) == len(WORDS)
    owner = rig.owner("parts.md").slots
    with rig.store.database.reading() as tx:  # the graph slot of one chunk has a later generation
        newer = next(slot for slot in owner if slot.kind == "graph")
        chunk = min(before)
        assert confirm_chunks(tx, rig.base.key, "graph", newer.recipe or 0, [chunk])[chunk].generation == 2
    view = SearchRun(tx, rig.library.indexes, rig.base, " ".join(WORDS))
    with rig.store.database.shared_reading() as view._tx:
        view.confirm("graph", rig.library.indexes.recipes(rig.base, "graph")[0], [chunk])
        found = view.read_hits(to_fused_hits(view.search_channel("fulltext")), 99)
    assert {hit.chunk for hit in found} == before


def test_a_rollout_reports_its_progress(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rolling, "DOCUMENTS_PER_TRANSACTION", 2)
    put(rig, "a.md", "b.md", "c.md")
    rig.work()
    change(rig, chunk_size=96)
    ask, seen = RolloutIndexer._request_batch, []

    def beats(self: RolloutIndexer, task: Any, *args: Any, **more: Any) -> Any:
        task.renew()
        seen.append((rollout(rig).done, rollout(rig).total))
        return ask(self, task, *args, **more)

    monkeypatch.setattr(RolloutIndexer, "_request_batch", beats)
    roll(rig)
    assert seen == [(0, 3)] * 6  # all are requested, none is built
    rig.worker.run_next(1)
    while rig.owner("a.md").status is not Status.SUCCESS:
        rig.worker.run_next(1)
    seen.clear()
    rig.clock.advance(rolling.RETRY_AFTER)
    roll(rig)
    assert set(seen) == {(0, 3), (1, 3)}
    assert (rollout(rig).state, rollout(rig).done, rollout(rig).total) == (SlotState.WAITING, 1, 3)
    rig.work()
    end_rollout(rig)
    assert (rollout(rig).state, seen[-1]) == (SlotState.READY, (3, 3))


def test_dropping_an_index_removes_only_its_slots_and_rows_while_search_keeps_working(rig: Rig) -> None:
    put(rig, "a.md", "b.md")
    rig.work()
    before = built(rig, "a.md")
    change(rig, indexes=("fulltext",))
    roll(rig)
    assert (rig.find("krill", "vector"), len(rig.find("krill"))) == ([], 2)
    owner = rig.owner("a.md")
    assert (owner.status, owner.slot("vector").state) == (Status.SUCCESS, SlotState.DELETING)  # type: ignore[union-attr]
    while rig.worker.run_next(1):
        assert len(rig.find("krill")) == 2
        audit(rig)
    assert built(rig, "a.md") == {"content": before["content"], "fulltext": before["fulltext"]}
    assert (rig.rows("vector"), len(rig.rows("fulltext"))) == ([], 2)
    sweep(rig)
    audit_quiet(rig)


def test_an_index_that_is_enabled_again_during_its_removal_is_rebuilt(rig: Rig) -> None:
    rig.index("whales.md", WHALES)
    change(rig, indexes=("fulltext",))
    roll(rig)
    change(rig, indexes=("vector", "fulltext"))
    roll(rig)
    assert (rollout(rig).state, rollout(rig).error_code) == (SlotState.WAITING, "documents_at_work")
    rig.work()
    assert set(built(rig, "whales.md")) == {"content", "fulltext"}
    end_rollout(rig)
    assert len(rig.find("krill", "vector")) == 1
    end_rollout(rig)
    assert rollout(rig).state is SlotState.READY
    sweep(rig)
    audit_quiet(rig)


def test_changed_chunk_settings_reindex_everything_while_the_old_index_serves(rig: Rig) -> None:
    rig.index("parts.md", sections(8))
    rig.index("whales.md", WHALES)
    change(rig, chunk_size=96)
    while rig.worker.run_next(1):
        audit(rig)
        for kind in ("vector", "fulltext"):
            assert {hit.name for hit in rig.find("krill", kind)} == {"parts.md", "whales.md"}
    for name in ("parts.md", "whales.md"):
        assert specs(rig, name)["content"] == '{"overlap": 0, "size": 96, "version": 2}'
        assert rig.owner(name).status is Status.SUCCESS
    sweep(rig)
    audit_quiet(rig)


def test_paid_answers_are_reused_after_chunk_settings_are_changed_back(rig: Rig, embedder: Embedder) -> None:
    rig.index("whales.md", WHALES)
    rig.index("parts.md", sections(8))
    change(rig, chunk_size=96)
    rig.work()
    change(rig, chunk_size=48)
    rig.work()
    assert len(embedder.asked) == len(set(embedder.asked))
    sweep(rig)
    audit_quiet(rig)


def test_a_new_embedding_model_rebuilds_only_vectors(rig: Rig) -> None:
    put(rig, "a.md", "b.md")
    rig.work()
    before = built(rig, "a.md")
    other = Embedder()
    other.embedding_model = "two"
    restart(rig, other)
    rig.library.sweep(LARGEST_BATCH)
    assert len(rig.find("krill")) == 2
    rig.work()
    for name in ("a.md", "b.md"):
        assert built(rig, name) == {**before, "vector": before["vector"] + 1}
        assert json.loads(specs(rig, name)["vector"])["model"].startswith("two@")
    assert len(rig.find("krill", "vector")) == 2
    wanted = rollout(rig).wanted
    restart(rig, other)
    sweep(rig)
    assert rollout(rig).wanted == wanted  # no process requests the same rollout again
    audit_quiet(rig)


def test_a_rollout_waits_for_a_document_that_is_being_indexed(rig: Rig) -> None:
    put(rig, "a.md", "b.md")
    (ticket,) = rig.store.claim_next(("content",), "hand", 1)  # this worker has read the old settings
    change(rig, chunk_size=96)
    roll(rig)
    assert (rollout(rig).state, rollout(rig).error_code) == (SlotState.WAITING, "documents_at_work")
    assert (rollout(rig).attempts, rollout(rig).error.params["documents"]) == (0, "1")
    rig.clock.advance(timedelta(minutes=3))  # the lease of that worker has expired
    rig.work()
    rig.clock.advance(rolling.RETRY_AFTER)
    rig.work()
    assert rollout(rig).state is SlotState.READY
    assert {specs(rig, name)["content"] for name in ("a.md", "b.md")} == {'{"overlap": 0, "size": 96, "version": 2}'}
    assert ticket.fence < rig.slot(rig.children(rig.base)[0].name, "content").fence
    sweep(rig)
    audit_quiet(rig)


def test_a_document_added_through_an_outdated_handle_uses_the_current_settings(rig: Rig) -> None:
    old = rig.base
    change(rig, indexes=("fulltext",), chunk_size=96)
    rig.base = old
    rig.index("whales.md", WHALES)
    assert set(built(rig, "whales.md")) == {"content", "fulltext"}
    assert specs(rig, "whales.md")["content"] == '{"overlap": 0, "size": 96, "version": 2}'
    rig.library.adder.add(rig.base, [Upload("later.md", STONES.encode())], AddOptions(index=False))
    rig.ask("later.md", Operation.INDEX)
    assert set(built(rig, "later.md")) == {"content", "fulltext"}


def test_a_newer_change_supersedes_the_rollout_of_an_older_one(rig: Rig) -> None:
    put(rig, "a.md", "b.md")
    rig.work()
    first = change(rig, chunk_size=96)
    second = change(rig, chunk_size=64, indexes=("vector", "fulltext", "graph"))
    assert rig.store.job(first.job).outcome == "superseded"
    rig.work()
    end_rollout(rig)
    assert rig.store.job(second.job).outcome == "success"
    for name in ("a.md", "b.md"):
        assert specs(rig, name)["content"] == '{"overlap": 0, "size": 64, "version": 2}'
        assert set(built(rig, name)) == {"content", "vector", "fulltext", "graph"}


def test_a_rollout_retries_a_failed_slot_only_if_the_change_affects_it(rig: Rig, embedder: Embedder) -> None:
    embedder.error = Permanent("content_refused")
    rig.index("whales.md", WHALES)
    assert rig.slot("whales.md", "vector").state is SlotState.FAILED
    embedder.error = None
    change(rig, indexes=("vector", "fulltext", "graph"))
    rig.work()
    assert rig.slot("whales.md", "vector").state is SlotState.FAILED
    change(rig, chunk_size=96)
    rig.work()
    assert rig.owner("whales.md").status is Status.SUCCESS


def test_the_retries_of_a_completed_repair_do_not_carry_over_to_the_next_rollout(rig: Rig, embedder: Embedder) -> None:
    bases(rig).repair(rig.base)  # retries everything, and completes
    rig.work()
    embedder.error = Permanent("content_refused")
    rig.index("whales.md", WHALES)
    embedder.error = None
    change(rig, indexes=("vector", "fulltext", "graph"))
    rig.work()
    assert rig.slot("whales.md", "vector").state is SlotState.FAILED


def test_a_superseded_rollout_requests_no_further_work(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.index("whales.md", WHALES)
    first = change(rig, chunk_size=96)
    target = RolloutIndexer._target

    def slow(self: RolloutIndexer, *args: Any) -> Any:
        old = target(self, *args)
        monkeypatch.setattr(RolloutIndexer, "_target", target)
        change(rig, chunk_size=64)
        return old

    monkeypatch.setattr(RolloutIndexer, "_target", slow)
    rig.work()
    assert specs(rig, "whales.md")["content"] == '{"overlap": 0, "size": 64, "version": 2}'
    with rig.store.database.reading() as tx:
        assert tx.run_sql(f"SELECT count(*) FROM jobs WHERE payload = '{first.job}'") == [(0,)]  # noqa: S608
    assert rig.owner("whales.md").generation == 2


def test_a_new_process_does_not_repeat_a_completed_rollout_for_failed_slots(rig: Rig) -> None:
    rig.index("whales.md", WHALES)
    other = Embedder()
    other.embedding_model, other.error = "two", Permanent("content_refused")
    restart(rig, other)
    sweep(rig)
    assert (rig.slot("whales.md", "vector").state, rollout(rig).wanted) == (SlotState.FAILED, 1)
    restart(rig, other)
    sweep(rig)
    assert rollout(rig).wanted == 1
    assert json.loads(specs(rig, "whales.md")["vector"])["model"].startswith("one@")  # the old vectors are still served


def test_a_rollout_also_applies_the_change_that_it_supersedes(rig: Rig, embedder: Embedder) -> None:
    rig.index("whales.md", WHALES)
    embedder.embedding_model = "two"
    embedder.error = Permanent("content_refused")
    rig.ask("whales.md", Operation.FORCE)
    rig.work()
    embedder.error = None
    bases(rig).repair(rig.base)  # retries failed slots
    change(rig, indexes=("vector", "fulltext", "graph"))
    rig.work()
    assert rig.slot("whales.md", "vector").state is SlotState.READY


def test_an_interrupted_rollout_continues_and_requests_no_document_twice(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rolling, "DOCUMENTS_PER_TRANSACTION", 2)
    put(rig, *[f"{n}.md" for n in range(6)])
    rig.work()
    change(rig, chunk_size=96)
    ask, calls = RolloutIndexer._request_batch, [0]

    def falls(self: RolloutIndexer, *args: Any, **more: Any) -> Any:
        calls[0] += 1
        if calls[0] == 5:
            raise OSError("the machine fell asleep")
        return ask(self, *args, **more)

    monkeypatch.setattr(RolloutIndexer, "_request_batch", falls)
    roll(rig)
    assert rollout(rig).state is SlotState.WAITING
    raised = [name for name in map("{}.md".format, range(6)) if rig.owner(name).status is Status.QUEUED]
    assert len(raised) == 4
    rig.clock.advance(timedelta(minutes=5))
    rig.work()
    end_rollout(rig)
    assert rollout(rig).state is SlotState.READY
    for n in range(6):
        owner = rig.owner(f"{n}.md")
        assert (owner.generation, owner.status) == (2, Status.SUCCESS)
        assert specs(rig, f"{n}.md")["content"] == '{"overlap": 0, "size": 96, "version": 2}'
    sweep(rig)
    audit_quiet(rig)


def test_a_rollout_does_not_index_documents_that_were_never_indexed(rig: Rig) -> None:
    rig.library.adder.add(rig.base, [Upload("later.md", WHALES.encode())], AddOptions(index=False))
    change(rig, chunk_size=96)
    rig.work()
    assert (rig.count("slots"), rollout(rig).state) == (1, SlotState.READY)


def test_a_rollout_respects_the_daily_quota_of_the_base(rig: Rig) -> None:
    put(rig, "a.md", "b.md")
    rig.work()
    rig.store.set_quota(rig.base.key, 2)
    change(rig, chunk_size=96)  # the rollout itself counts as the first job of the day
    rig.work()
    assert (rollout(rig).state, rollout(rig).error_code) == (SlotState.WAITING, "daily_quota")
    rig.clock.advance(timedelta(days=1))
    rig.work()
    assert {specs(rig, name)["content"] for name in ("a.md", "b.md")} == {'{"overlap": 0, "size": 96, "version": 2}'}


def fail(rig: Rig, embedder: Embedder) -> None:
    """Index one document, then make the embedding model fail for a second one."""
    rig.index("whales.md", WHALES)
    embedder.error = Permanent("model_unknown", "The model is gone.")
    rig.index("stones.md", STONES)
    rig.base = bases(rig).read(rig.base)


def test_a_base_whose_embedding_model_no_longer_exists_fails_with_the_reason(rig: Rig, embedder: Embedder) -> None:
    fail(rig, embedder)
    assert (rig.base.status, rig.base.problem.code) == (BaseStatus.FAILED, "model_unknown")  # type: ignore[union-attr]
    assert rig.owner("stones.md").status is Status.DEGRADED


def test_a_refused_key_does_not_fail_the_base(rig: Rig, embedder: Embedder) -> None:
    embedder.error = Permanent("provider_key_refused")
    rig.index("whales.md", WHALES)
    assert bases(rig).read(rig.base).status is BaseStatus.READY


def test_a_changed_vector_length_fails_the_base_after_repeated_attempts(rig: Rig, embedder: Embedder) -> None:
    rig.index("whales.md", WHALES)
    embedder.length = 7
    rig.put("stones.md", STONES)
    for attempt in range(1, 5):
        assert bases(rig).read(rig.base).status is BaseStatus.READY, f"before attempt {attempt}"
        rig.work()
        rig.clock.advance(timedelta(minutes=15))
    problem = bases(rig).read(rig.base).problem
    assert problem is not None
    assert problem.code == "vector_length"
    with pytest.raises(BaseFailed, match="returns vectors of 7 numbers"):
        rig.put("more.md", STONES)
    with pytest.raises(BaseFailed, match="returns vectors of 7 numbers"):
        bases(rig).repair(rig.base)


def test_a_new_version_of_the_model_and_a_repair_embed_everything_again(
    rig: Rig, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.index("whales.md", WHALES)
    embedder.length = 7
    rig.put("stones.md", STONES)
    for _ in range(4):
        rig.work()
        rig.clock.advance(timedelta(minutes=15))
    monkeypatch.setattr(Embedder, "version", "2")
    rig.base = bases(rig).repair(rig.base).base
    rig.work()
    rig.library.sweep(LARGEST_BATCH)
    rig.work()
    assert rig.base.status is BaseStatus.READY
    assert [rig.owner(name).status for name in ("whales.md", "stones.md")] == [Status.SUCCESS] * 2
    assert {hit.name for hit in rig.find("whale", "vector")} == {"whales.md", "stones.md"}


@pytest.mark.parametrize("length", [8, 4])
def test_vectors_of_two_lengths_never_share_a_table(rig: Rig, length: int) -> None:
    store = open_vector_store(rig.store.database)
    first, other = bytes(4 * 6), bytes(4 * length)
    rig.store.database.write(lambda tx: store.put(tx, 99, {1: first}), durable=False)
    with pytest.raises(Transient, match=f"returns vectors of {length} numbers") as caught:
        rig.store.database.write(lambda tx: store.put(tx, 99, {2: other}), durable=False)
    assert caught.value.code == "vector_length"
    assert (store.absent(99, [1, 2]), store.dimension(99)) == ([2], 6)
    store.drop(99, [1])
    rig.store.database.write(lambda tx: store.put(tx, 99, {2: other}), durable=False)  # an empty table takes any length
    assert store.dimension(99) == length


def test_a_failed_base_refuses_work_that_builds_and_stays_searchable(rig: Rig, embedder: Embedder) -> None:
    fail(rig, embedder)
    items = rig.library.items
    item = items.find(rig.base, "whales.md").id
    page = Upload("page", kind=ItemKind.URL, source="https://example.org/")
    refused: list[Callable[[], object]] = [
        lambda: rig.library.adder.add(rig.base, [Upload("new.md", b"new")]),
        lambda: rig.library.adder.add(rig.base, [page]),
        *[
            lambda o=o: rig.library.operations.request(rig.base, [item], Action(o))
            for o in (Operation.INDEX, Operation.RETRY, Operation.FORCE)
        ],
        lambda: rig.library.operations.reindex(rig.base, [item]),
        lambda: items.chunks(rig.base, item),
        lambda: rig.library.cards.generate(
            replace(rig.base, settings=replace(rig.base.settings, indexes=("vector", "questions")))
        ),
    ]
    for work in refused[:-1]:
        with pytest.raises(BaseFailed, match="The model is gone"):
            work()
    rig.library.cards._require_questions = lambda base: None  # type: ignore[method-assign]  # noqa: ARG005
    with pytest.raises(BaseFailed, match="The model is gone"):
        refused[-1]()
    assert [hit.name for hit in rig.find("krill")] == ["whales.md"]
    assert [hit.name for hit in rig.library.searcher.search(rig.base, "krill")][:1] == ["whales.md"]
    assert rig.library.operations.request(rig.base, [item], Action.CANCEL)[0].verdict is Verdict.SKIPPED
    assert rig.library.remover.delete(rig.base, [item])[0].accepted


def test_sources_of_a_failed_base_are_not_refreshed_by_their_schedule(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "books").mkdir()
    books = Upload("books", kind=ItemKind.DIRECTORY, source=str(tmp_path / "books"), every=60)
    rig.library.adder.add(rig.base, [books])
    rig.work()
    rig.library.catalog.fail_base(rig.base.key, Permanent("model_unknown", "The model is gone."))
    rig.clock.advance(timedelta(hours=1))
    assert rig.library.remover.continue_deletes(10) + rig.library.operations.refresh_due(10) == 0
    item = rig.library.items.find(rig.base, "books").id
    with pytest.raises(BaseFailed):
        rig.library.operations.refresh(rig.base, [item])
    bases(rig).repair(rig.base)
    assert rig.library.remover.continue_deletes(10) + rig.library.operations.refresh_due(10) == 1


def test_repair_calls_the_provider_once_and_reports_why_it_still_fails(rig: Rig, embedder: Embedder) -> None:
    fail(rig, embedder)
    embedder.error = Permanent("model_unknown", "It is still gone.")
    asked = len(embedder.asked)
    with pytest.raises(BaseFailed, match="It is still gone"):
        bases(rig).repair(rig.base)
    assert len(embedder.asked) == asked + 1
    problem = bases(rig).read(rig.base).problem
    assert problem is not None
    assert problem.params["message"] == "It is still gone."


def test_repair_builds_only_missing_results(rig: Rig, embedder: Embedder) -> None:
    fail(rig, embedder)
    before = built(rig, "whales.md")
    embedder.error = None
    changed = bases(rig).repair(rig.base)
    assert (changed.base.status, changed.base.problem) == (BaseStatus.READY, None)
    rig.work()
    assert rig.owner("stones.md").status is Status.SUCCESS
    assert built(rig, "whales.md") == before  # complete documents are not rebuilt
    sweep(rig)
    audit_quiet(rig)


def test_settings_of_a_failed_base_take_effect_when_it_is_repaired(rig: Rig, embedder: Embedder) -> None:
    fail(rig, embedder)
    assert change(rig, indexes=("fulltext",)) is None
    assert rig.worker.run_next(9) == 0
    bases(rig).repair(rig.base)  # no index needs the model any more, so the repair does not call it
    rig.work()
    assert rig.owner("stones.md").status is Status.SUCCESS
    assert (set(built(rig, "whales.md")), rig.rows("vector")) == ({"content", "fulltext"}, [])


def test_a_base_failure_ends_the_rollout_and_a_repair_completes_it(rig: Rig, embedder: Embedder) -> None:
    put(rig, "a.md", "b.md")
    rig.work()
    change(rig, chunk_size=96)
    rig.library.catalog.fail_base(rig.base.key, Permanent("model_unknown", "The model is gone."))
    rig.work()
    assert (rollout(rig).state, rollout(rig).error_code) == (SlotState.FAILED, "base_not_usable")
    assert "because base 'shelf' has failed or was deleted" in describe_fault(rollout(rig).error).message
    bases(rig).repair(rig.base)
    rig.work()
    assert {specs(rig, name)["content"] for name in ("a.md", "b.md")} == {'{"overlap": 0, "size": 96, "version": 2}'}


def test_clearing_hides_everything_at_once_and_keeps_name_and_settings(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(rig, "a.md", "b.md")
    rig.work()
    put(rig, "c.md")  # still queued
    monkeypatch.setattr("holdfast.documents.remove.LARGEST_BATCH", 2)
    bases(rig).clear(rig.base)
    assert (rig.children(rig.base), rig.find("krill"), rig.find("krill", "vector")) == ([], [], [])
    assert rig.library.catalog.find_base("shelf") == rig.base
    put(rig, "a.md")
    rig.work()
    assert [hit.name for hit in rig.find("krill")] == ["a.md"]
    sweep(rig)
    assert rig.count("items") == 1
    audit_quiet(rig)


def test_clearing_removes_the_cards_and_a_failed_base_can_be_cleared(rig: Rig, embedder: Embedder) -> None:
    fail(rig, embedder)
    own_slots(rig)
    bases(rig).clear(rig.base)
    sweep(rig)
    with rig.store.database.reading() as tx:
        assert {name for (name,) in tx.run_sql("SELECT owner FROM owners")} == {MERGING_OWNER}
    assert bases(rig).read(rig.base).status is BaseStatus.FAILED
    audit_quiet(rig)


def own_slots(rig: Rig) -> None:
    """Request the slots of the base itself: cards and merged descriptions."""
    request = Request(base=rig.base.key, owner="cards", operation=Operation.FORCE, slots=(SlotSpec("cards"),))
    rig.store.admit([request])
    merging.request_merge(rig.store, rig.base.key)


def fill(rig: Rig) -> Base:
    """Fill the base, and a second base that must stay unchanged."""
    change(rig, indexes=CHANNELS)
    put(rig, "a.md", "b.md")
    (rig.folder.parent / "books").mkdir()
    (rig.folder.parent / "books" / "c.md").write_text(WHALES)
    books = Upload("books", kind=ItemKind.DIRECTORY, source=str(rig.folder.parent / "books"))
    rig.library.adder.add(rig.base, [books])
    rig.work()
    own_slots(rig)
    rig.store.set_quota(rig.base.key, 1000)
    rig.store.pause(rig.base.key)
    rig.store.resume(rig.base.key)
    other = bases(rig).create("other", rig.base.settings)
    rig.library.adder.put(other, [Upload("a.md", WHALES.encode())])
    rig.work()
    return other


def assert_gone(rig: Rig, gone: Base, other: Base, recipes: Sequence[int]) -> None:
    """Assert that no row of the deleted base is left and that the other base is unchanged."""
    assert left_of(rig, gone) == {}
    assert tables(rig, recipes) == []
    with rig.store.database.reading() as tx:
        for table in ("names", "graph_chunks", "graph_changes", "merged", "merged_sources"):
            kept = {recipe for (recipe,) in tx.run_sql(f"SELECT DISTINCT recipe FROM library_{table}")}  # noqa: S608
            assert not kept & set(recipes), table
    for kind in ("vector", "fulltext"):
        assert [hit.name for hit in rig.library.searcher.search_channel(other, kind, "krill", 9)] == ["a.md"]
    audit_quiet(rig)


def test_a_deleted_base_disappears_immediately_and_its_name_is_free(rig: Rig) -> None:
    fill(rig)
    bases(rig).delete(rig.base)
    assert [base.name for base in rig.library.catalog.bases()] == ["other"]
    with pytest.raises(UnknownBase):
        rig.library.catalog.find_base("shelf")
    for kind in CHANNELS:
        assert rig.find("krill", kind) == []
    assert rig.library.searcher.search(rig.base, "krill") == []
    assert bases(rig).create("shelf").id != rig.base.id


def interrupted(*_: object, **__: object) -> int:
    raise OSError("the lights went out")


def test_a_deleted_base_leaves_no_rows_and_other_bases_are_unchanged(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    other = fill(rig)
    recipes = [recipe.id for _, recipe in rig.library.catalog.recipes_of(rig.base.key)]
    assert len(tables(rig, recipes)) == 2
    rig.library.paid_cache.reserve(rig.base, [(None, Charge(kind="answer", model="m@1", texts=1, tokens_in=5))])
    paid = rig.library.paid_cache.summarize_base(rig.base.key)
    monkeypatch.setattr("holdfast.bases.lifecycle.LARGEST_BATCH", 2)
    bases(rig).delete(rig.base)
    sweep(rig)
    assert_gone(rig, rig.base, other, recipes)
    assert paid.kinds_spent != []
    assert rig.library.paid_cache.summarize_base(rig.base.key) == paid  # the ledger keeps what was spent
    assert rig.library.sweep(LARGEST_BATCH) == 0


class Killed(BaseException):
    """The worker process ends here."""


@pytest.mark.parametrize("point", ["closed", "hidden", "asked", "removed", "cleaned", "forgotten"])
def test_a_worker_completes_a_delete_that_was_interrupted_at_any_point(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    other = fill(rig)
    recipes = [recipe.id for _, recipe in rig.library.catalog.recipes_of(rig.base.key)]
    take_down, rounds = Bases.hide_and_request_clean_up, {"closed": 0, "hidden": 1, "asked": 2}.get(point, 99)
    bases(rig).delete(rig.base)
    with monkeypatch.context() as crash:

        def falls(self: Bases, *args: Any) -> int:
            nonlocal rounds
            rounds -= 1
            if rounds < 0:
                raise Killed
            return take_down(self, *args)

        def falls_later(self: Bases, *args: Any) -> int:
            remove(self, *args)
            raise Killed

        crash.setattr(Bases, "hide_and_request_clean_up", falls)
        remove = Bases.remove_empty
        if point == "removed":
            crash.setattr(Bases, "remove_empty", falls_later)
        if rounds < 9 or point == "removed":
            with pytest.raises(Killed):
                sweep(rig)
    if point == "cleaned":
        assert rig.worker.run_next(3)  # the worker stops after three clean-ups
    if point == "forgotten":
        rig.work()
        rig.library.remover.continue_deletes(LARGEST_BATCH) + rig.library.operations.refresh_due(LARGEST_BATCH)
        with monkeypatch.context() as crash:
            crash.setattr(FulltextIndex, "forget", interrupted)
            with pytest.raises(OSError, match="out"):
                sweep(rig)
    restart(rig, Embedder())
    rig.clock.advance(timedelta(minutes=3))  # the lease of the killed worker
    sweep(rig)
    assert_gone(rig, rig.base, other, recipes)


def test_tables_of_a_recipe_are_dropped_only_after_its_last_worker_has_finished(rig: Rig) -> None:
    other = fill(rig)
    recipes = [recipe.id for _, recipe in rig.library.catalog.recipes_of(rig.base.key)]
    bases(rig).delete(rig.base)
    remover = rig.hire("remover")
    remover.indexers = {"base": rig.indexers["base"]}
    remover.run_next(1)
    (ticket,) = rig.store.claim_next(("fulltext",), "hand", 1)  # a slow worker is still removing rows
    sweep(rig)
    assert len(tables(rig, recipes)) == 2
    rig.store.release([Release(ticket=ticket)])
    sweep(rig)
    assert_gone(rig, rig.base, other, recipes)


def test_a_deleted_base_keeps_its_record_while_an_uninstalled_index_may_have_rows(rig: Rig) -> None:
    rig.index("whales.md", WHALES)
    rig.library.catalog.get_or_create_recipe(rig.base, "elsewhere", {"version": 1})
    bases(rig).delete(rig.base)
    sweep(rig)
    assert left_of(rig, rig.base) == {"bases": 1, "library_recipes": 1, "owners": 1}
    assert rig.library.catalog.bases() == []
    assert rig.count("items") == 0


def test_a_failing_clean_up_is_retried_and_does_not_block_other_bases(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = fill(rig)
    recipes = [recipe.id for _, recipe in rig.library.catalog.recipes_of(rig.base.key)]
    third = bases(rig).create("third")
    with monkeypatch.context() as broken:

        def down(*_: object) -> None:
            raise StoreUnavailable("not now")

        broken.setattr(FulltextIndex, "forget", down)
        bases(rig).delete(rig.base)
        bases(rig).delete(third)
        sweep(rig)
        assert left_of(rig, third) == {}
        assert left_of(rig, rig.base)["bases"] == 1
        rig.clock.advance(timedelta(minutes=15))  # the failed removal waits
    sweep(rig)
    assert_gone(rig, rig.base, other, recipes)


def test_a_base_can_be_deleted_during_indexing_a_rollout_and_card_generation(rig: Rig) -> None:
    other = fill(rig)
    recipes = [recipe.id for _, recipe in rig.library.catalog.recipes_of(rig.base.key)]
    put(rig, "d.md")
    change(rig, chunk_size=96)
    own_slots(rig)
    tickets = [rig.store.claim_next((kind,), "hand", 1)[0] for kind in ("content", "cards", ROLLOUT)]
    bases(rig).delete(rig.base)
    rig.worker.run_next(1)
    for ticket in tickets:
        assert rig.store.job(ticket.job).outcome == "deleted"
    assert {job.outcome for job in map(rig.store.job, {ticket.job for ticket in tickets})} == {"deleted"}
    rig.store.release([Release(ticket=ticket) for ticket in tickets])
    sweep(rig)
    assert_gone(rig, rig.base, other, recipes)


def test_a_rollout_of_a_base_that_is_being_deleted_requests_no_work(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    put(rig, "a.md", "b.md")
    rig.work()
    change(rig, chunk_size=96)
    target = RolloutIndexer._target

    def slow(self: RolloutIndexer, *args: Any) -> Any:
        bases(rig).delete(rig.base)
        return target(self, *args)

    monkeypatch.setattr(RolloutIndexer, "_target", slow)
    sweep(rig)
    assert left_of(rig, rig.base) == {}
    audit_quiet(rig)


def test_an_outdated_handle_of_a_deleted_base_is_refused(rig: Rig) -> None:
    rig.index("whales.md", WHALES)
    bases(rig).delete(rig.base)
    rig.library.cards._require_questions = lambda base: None  # type: ignore[method-assign]  # noqa: ARG005
    asked: list[Callable[[], object]] = [
        lambda: put(rig, "new.md"),
        lambda: rig.library.cards.generate(rig.base),
        lambda: merging.request_merge(rig.store, rig.base.key),
        lambda: bases(rig).rename(rig.base, "new"),
        lambda: bases(rig).change(rig.base, rig.base.settings),
        lambda: bases(rig).repair(rig.base),
        lambda: bases(rig).clear(rig.base),
        lambda: bases(rig).delete(rig.base),
        lambda: bases(rig).read(rig.base),
    ]
    for work in asked:
        with pytest.raises(UnknownBase):
            work()
    sweep(rig)
    assert left_of(rig, rig.base) == {}
    for work in asked:
        with pytest.raises(UnknownBase):
            work()
    assert left_of(rig, rig.base) == {}
    audit_quiet(rig)


def test_an_add_concurrent_with_a_delete_of_the_base_commits_first_or_is_refused(rig: Rig) -> None:
    with rig.store.database.writing(durable=True) as tx:
        lock_open_base(tx, rig.base, building=True)  # another transaction is adding a document
        meanwhile = Meanwhile(rig.store.database, lambda: bases(rig).delete(rig.base))
        assert meanwhile.waits
    meanwhile.end()
    with pytest.raises(UnknownBase):
        put(rig, "late.md")
    sweep(rig)
    assert left_of(rig, rig.base) == {}


def test_a_deleted_item_is_never_requested_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.library.adder.add(rig.base, [Upload("later.md", WHALES.encode())], AddOptions(index=False))
    item = rig.library.items.find(rig.base, "later.md").id
    slots = rig.library.adder.slot_specs

    def late(base: Base) -> Any:
        rig.library.remover.delete(rig.base, [item])
        return slots(base)

    monkeypatch.setattr(rig.library.adder, "slot_specs", late)
    assert rig.library.operations.request(rig.base, [item], Action.INDEX)[0].reason == "nothing_to_do"
    sweep(rig)
    audit_quiet(rig)
