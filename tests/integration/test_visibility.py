"""Each condition of the visibility check alone hides a hit, and without it the hit would be shown."""
# ruff: noqa: S608 - SQL built from constants of these tests

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.catalog import chunk_statements, visibility, visibility_statements
from holdfast.catalog.repository import BaseSettings
from holdfast.documents.requests import Upload
from holdfast.engine.states import Operation
from tests.support.audit import audit, audit_quiet, changed
from tests.support.harness import Rig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.clock import FakeClock

CHANNELS = ("vector", "fulltext")
KRILL = "# Whales\n\nThe blue whale eats krill.\n"
STONES = "# Stones\n\nGranite is hard, and no krill is in it.\n"


@pytest.fixture
def rig(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Rig]:
    rig = Rig(database_url, tmp_path / "blobs", clock)
    yield rig
    rig.close()


@pytest.fixture(params=CHANNELS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def names(rig: Rig, kind: str) -> list[str]:
    return sorted({str(hit.name) for hit in rig.find("krill", kind)})


def change(rig: Rig, sql: str) -> None:
    """Change rows directly, without any guard."""
    rig.store.database.write(lambda tx: tx.run_sql(sql), durable=False)


def unpublish(rig: Rig, kind: str) -> None:
    """Mark a slot of the whales as unpublished, and leave all other rows as they are after publishing."""
    rig.ask("whales.md", Operation.FORCE)
    change(rig, f"UPDATE slots SET built = 0 WHERE id = {rig.slot('whales.md', kind).id}")


def assert_only(rig: Rig, kind: str, patch: pytest.MonkeyPatch, guard: str, instead: str = "") -> None:
    """Assert that the whales are hidden, the stones are shown, and only this condition hides the whales."""
    assert_only_by(rig, kind, patch, {guard: instead})


def assert_only_by(rig: Rig, kind: str, patch: pytest.MonkeyPatch, guards: dict[str, str]) -> None:
    assert names(rig, kind) == ["stones.md"]
    with patch.context() as unguarded:
        unguarded.setattr(visibility, "sql", changed(visibility_statements, guards))
        assert len(names(rig, kind)) == 2
    assert names(rig, kind) == ["stones.md"]


def test_a_hit_of_another_base_is_not_shown(rig: Rig, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.index("stones.md", STONES)
    other = rig.library.catalog.create_base("other", BaseSettings())
    rig.library.adder.put(other, [Upload("whales.md", KRILL.encode())])
    rig.work()
    (mine,) = rig.library.indexes.recipes(rig.base, kind)
    (theirs,) = rig.library.indexes.recipes(other, kind)
    change(rig, f"INSERT INTO {kind}_{mine.id} {copied(rig, kind, theirs.id)}")
    change(rig, f"UPDATE slots SET recipe = {mine.id} WHERE recipe = {theirs.id}")
    assert_only(rig, kind, monkeypatch, "owners.c.base == text_param('base'), BASE_OPEN", instead="BASE_OPEN")


def copied(rig: Rig, kind: str, recipe: int) -> str:
    """Select the rows of a recipe in the form that another recipe of the same kind can store."""
    sqlite = rig.store.database.engine.dialect.name == "sqlite"
    if kind == "vector":
        return f"{'(chunk, vector) ' if sqlite else ''}SELECT chunk, vector FROM vector_{recipe}"
    if sqlite:
        return f"(rowid, headings, body) SELECT rowid, headings, body FROM fulltext_{recipe}"
    return f"SELECT chunk, words, length FROM fulltext_{recipe}"


def test_a_hit_whose_slot_never_published_is_not_shown(rig: Rig, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.index("stones.md", STONES)
    rig.index("whales.md", KRILL)
    unpublish(rig, kind)
    assert_only(
        rig,
        kind,
        monkeypatch,
        "slot_is_served(slots), slots.c.recipe",
        instead="slots.c.state != literal_column(\"'deleting'\"), slots.c.recipe",
    )


def test_a_hit_of_a_document_that_is_being_deleted_is_not_shown(
    rig: Rig, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.index("stones.md", STONES)
    rig.index("whales.md", KRILL)
    rig.delete("whales.md")
    change(rig, "UPDATE library_items SET deleting = 0")
    assert_only(
        rig, kind, monkeypatch, "slot_is_served(slots), slots.c.recipe", instead="slots.c.built > 0, slots.c.recipe"
    )


def test_a_hit_of_a_hidden_item_is_not_shown_before_its_slots_are_deleted(
    rig: Rig, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.index("stones.md", STONES)
    rig.index("whales.md", KRILL)
    change(rig, "UPDATE library_items SET deleting = 1 WHERE name = 'whales.md'")
    assert_only(rig, kind, monkeypatch, "ITEM_VISIBLE, slot_is_served(slots)", instead="slot_is_served(slots)")


def test_no_hit_of_a_base_that_is_being_deleted_is_shown(rig: Rig, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.index("whales.md", KRILL)
    change(rig, "UPDATE library_bases SET deleting = 1")
    assert rig.find("krill", kind) == []
    with monkeypatch.context() as unguarded:
        unguarded.setattr(
            visibility,
            "sql",
            changed(
                visibility_statements,
                {"BASE_OPEN, ITEM_VISIBLE, slot_is_served(slots)": "ITEM_VISIBLE, slot_is_served(slots)"},
            ),
        )
        assert rig.find("krill", kind)


def test_a_hit_of_a_recipe_that_is_not_served_is_not_shown(
    rig: Rig, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.index("stones.md", STONES)
    rig.index("whales.md", KRILL)
    change(rig, f"UPDATE slots SET recipe = 999 WHERE id = {rig.slot('whales.md', kind).id}")
    assert_only(
        rig,
        kind,
        monkeypatch,
        "slots.c.recipe == int_param('recipe'), ~lacks",
        instead="~lacks",
    )


def test_a_hit_that_is_not_in_the_served_list_is_not_shown(
    rig: Rig, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.index("stones.md", STONES)
    rig.index("whales.md", KRILL)
    rig.index("whales.md", "# Whales\n\nThe blue whale is the largest animal.\n")  # the old row is not swept yet
    hits = [hit for hit in rig.find("krill", kind) if hit.name == "whales.md"]
    assert not [hit for hit in hits if "krill" in hit.text]
    with monkeypatch.context() as unguarded:
        unguarded.setattr(
            visibility, "sql", changed(visibility_statements, {", list_entries.c.build == slots.c.source": ""})
        )
        shown = [hit.text for hit in rig.find("krill", kind) if hit.name == "whales.md"]
        assert [text for text in shown if "krill" in text]
    audit(rig)


def test_a_row_of_content_that_is_not_published_yet_is_not_shown(
    rig: Rig, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.index("stones.md", STONES)
    rig.index("whales.md", "# Whales\n\nThe blue whale is the largest animal.\n")
    rig.put("whales.md", KRILL)
    assert rig.worker.run_next(1) == 1  # only the content
    assert rig.slot("whales.md", kind).built == 1
    (ticket,) = rig.store.claim_next((kind,), "hand", 1)
    with rig.store.guarded(ticket) as connection:  # the index has written its rows but not published them
        tx = rig.store.database.wrap_connection(connection)
        new = max(chunk for (chunk,) in tx.run_sql("SELECT id FROM library_chunks"))
        recipe = rig.library.indexes.recipes(rig.base, kind)[0].id
        old = rig.rows(kind)[0]
        tx.run_sql(f"INSERT INTO {kind}_{recipe} {relabelled(rig, kind, recipe, old, new)}")
    assert new in rig.rows(kind)
    texts = [hit.text for hit in rig.find("krill", kind) if hit.name == "whales.md"]
    assert not [text for text in texts if "krill" in text]
    with monkeypatch.context() as unguarded:
        unguarded.setattr(
            visibility, "sql", changed(visibility_statements, {", list_entries.c.build == slots.c.source": ""})
        )
        shown = [hit.chunk for hit in rig.find("krill", kind)]
        assert new in shown
    audit(rig)


def relabelled(rig: Rig, kind: str, recipe: int, old: int, new: int) -> str:
    """Select the row of one chunk as the row of another."""
    rowid = "rowid" if kind == "fulltext" and rig.store.database.engine.dialect.name == "sqlite" else "chunk"
    select = copied(rig, kind, recipe)
    head, _, tail = select.rpartition(f"SELECT {rowid}")
    return f"{head}SELECT {new}{tail} WHERE {rowid} = {old}"


def test_a_hit_on_a_missing_chunk_is_not_shown(rig: Rig, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.index("stones.md", STONES)
    rig.index("whales.md", KRILL)
    chunk = max(rig.rows(kind))
    slot = rig.slot("whales.md", kind).id
    change(rig, f"INSERT INTO library_missing (slot_id, chunk_id, reason) VALUES ({slot}, {chunk}, '{{}}')")
    assert_only(rig, kind, monkeypatch, ", ~lacks")
    other = next(one for one in CHANNELS if one != kind)
    assert names(rig, other) == ["stones.md", "whales.md"]  # the other index of the document is not missing the chunk


def test_a_hit_without_its_document_is_not_shown(rig: Rig, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.index("stones.md", STONES)
    rig.index("whales.md", KRILL)
    change(rig, "DELETE FROM library_items WHERE name = 'whales.md'")
    join = ".join(items, items.c.id == _item_id).join(bases"
    guards = {
        join: join.replace(".join", ".outerjoin"),
        "BASE_OPEN, ITEM_VISIBLE, slot_is_served(slots)": "slot_is_served(slots)",
    }
    assert_only_by(rig, kind, monkeypatch, guards)


def test_a_hit_without_its_build_is_not_shown(rig: Rig, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.index("stones.md", STONES)
    rig.index("whales.md", KRILL)
    change(rig, f"DELETE FROM library_builds WHERE owner_id = {rig.owner('whales.md').id}")
    guard = ".join(builds, and_(builds.c.owner_id == list_entries"
    assert_only(rig, kind, monkeypatch, guard, instead=guard.replace(".join", ".outerjoin"))


def test_a_hit_that_only_another_index_of_the_document_serves_is_not_shown(
    rig: Rig, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.index("stones.md", STONES)
    rig.index("whales.md", KRILL)
    other = next(one for one in CHANNELS if one != kind)
    mine = rig.slot("whales.md", kind)
    change(rig, f"UPDATE slots SET recipe = {mine.recipe} WHERE id = {rig.slot('whales.md', other).id}")
    unpublish(rig, kind)
    assert_only(rig, kind, monkeypatch, ", slots.c.kind == text_param('kind'))", instead=")")


def test_a_hit_with_the_wrong_owner_is_not_shown(rig: Rig, kind: str) -> None:
    rig.index("stones.md", STONES)
    rig.index("whales.md", KRILL)
    recipe = rig.slot("whales.md", kind).recipe
    with rig.store.database.reading() as tx:
        owned = tx.run(chunk_statements.READ_CHUNKS_OF_BASE, base=rig.base.key)
        others = {chunk: next(one for _, one in owned if one != owner) for chunk, owner in owned}
        asked = {"base": rig.base.key, "kind": kind, "recipe": recipe}
        assert len(tx.run(visibility_statements.SELECT_CONFIRMED_CHUNKS, owned, **asked)) == len(owned)
        assert tx.run(visibility_statements.SELECT_CONFIRMED_CHUNKS, list(others.items()), **asked) == []


def test_chunk_owners_are_reloaded_for_many_new_chunks_but_not_for_removed_ones(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visibility, "RELOAD_THRESHOLD", 2)
    owners = visibility.ChunkOwnerCache()

    def known() -> visibility.ChunkOwnerTable:
        with rig.store.database.reading() as tx:
            everybody = tx.run(chunk_statements.READ_CHUNKS_OF_BASE, base=rig.base.key)
            asked = [chunk for chunk, _ in everybody]
            assert sorted(owners.find_owners(tx, rig.base.key, [*asked, 900, 901, 902])) == everybody
        return owners._bases[rig.base.key]

    first = known()
    rig.index("stones.md", STONES)
    assert known() is first  # chunks that were not found before do not count for a reload
    with rig.store.database.reading() as tx:
        assert owners.find_owners(tx, rig.base.key, [998, 999, 1_000]) == []
    assert known() is not first
    assert len(known().owners) == len(rig.rows("vector"))


def test_the_cache_of_chunk_owners_evicts_other_bases_when_it_is_full(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visibility, "MAX_CACHED_CHUNKS", 2)
    owners = visibility.ChunkOwnerCache()
    with rig.store.database.reading() as tx:
        for base in ("1", "2", "3", "4"):
            assert owners.find_owners(tx, base, [5]) == []
    assert list(owners._bases) == ["2", "3", "4"]


def test_a_recipe_that_serves_no_document_is_not_searched(rig: Rig, kind: str) -> None:
    rig.index("whales.md", KRILL)
    with rig.store.database.reading() as tx:
        assert visibility.served_recipes(tx, rig.base.key, kind) == [rig.slot("whales.md", kind).recipe]
        assert visibility.served_recipes(tx, "999", kind) == []
    rig.delete("whales.md")
    with rig.store.database.reading() as tx:
        assert visibility.served_recipes(tx, rig.base.key, kind) == []


@pytest.mark.parametrize(("better", "limits"), [(300, (5, 20)), (70, (1,))])
def test_channels_fetch_more_until_enough_are_confirmed(rig: Rig, better: int, limits: tuple[int, ...]) -> None:
    best = [Upload(f"gone-{number}.md", b"krill krill krill") for number in range(better)]
    kept = [Upload(f"kept-{number}.md", f"krill and stone {number} of granite".encode()) for number in range(5)]
    rig.library.adder.put(rig.base, best + kept)
    rig.work()
    for kind in CHANNELS:
        assert {hit.name[:4] for hit in rig.find("krill", kind, better)} == {"gone"}
    with rig.store.database.writing(durable=False) as tx:  # all in one transaction, as if they were being deleted
        gone = "SELECT id FROM library_items WHERE substr(name, 1, 4) = 'gone'"
        tx.run_sql(f"UPDATE slots SET state = 'deleting' WHERE owner_id IN ({owners_of(gone)})")
    for kind in CHANNELS:
        for limit in limits:
            hits = rig.find("krill", kind, limit)
            assert len({hit.name for hit in hits}) == len(hits) == min(limit, 5), f"{kind}, limit {limit}"
            assert all(hit.name.startswith("kept") for hit in hits)


def owners_of(documents: str) -> str:
    return f"SELECT id FROM owners WHERE CAST(owner AS BIGINT) IN ({documents})"


def test_search_shows_exactly_the_served_content_through_the_life_of_a_document(rig: Rig) -> None:
    text = "\n\n".join(f"## Part {n}\n\nThe krill of part {n}." for n in range(20))
    rig.index("parts.md", text)
    audit(rig)
    rig.put("parts.md", text.replace("part 7", "chapter 7"))
    while rig.worker.run_next(1):
        audit(rig)
    rig.ask("parts.md", Operation.FORCE)
    while rig.worker.run_next(1):
        audit(rig)
    rig.put("parts.md", "Something else.")
    rig.worker.run_next(1)
    rig.ask("parts.md", Operation.CANCEL)
    rig.work()
    audit(rig)
    rig.sweep()
    audit_quiet(rig)
