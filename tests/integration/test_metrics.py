"""Metrics of paid calls, of roles without an API, of guarded works; and the doctor's check of their totals."""

from __future__ import annotations

from datetime import timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.catalog.repository import BaseSettings
from holdfast.engine.store.metric_statements import ADD_TOTALS
from holdfast.engine.totals import Total
from holdfast.errors import StoreError
from holdfast.guard import Guard
from holdfast.health import answering_health
from holdfast.indexes import sizes
from holdfast.llm.paid_cache import Charge
from holdfast.metrics import MetricsEndpoint, Sample, budgets
from holdfast.metrics import index_rows as index_rows_module
from holdfast.settings import Settings
from holdfast.wiring import sample_queues
from tests.support.harness import Rig
from tests.support.servers import free_port
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.clock import FakeClock

TEXT = "# Whales\n\nThe blue whale eats krill.\n"


@pytest.fixture
def rig(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Rig]:
    rig = Rig(database_url, tmp_path / "blobs", clock, indexes=("fulltext",))
    yield rig
    rig.close()


def parse(text: str) -> dict[tuple[str, ...], float]:
    """Return the value of each sample, by its name and the values of its labels."""
    return {
        (sample.name, *(sample.labels[label] for label in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_role_without_an_api_answers_metrics_beside_health_checks(rig: Rig) -> None:
    rig.index("whales.md", TEXT)
    port = free_port()
    endpoint = rig.library.metrics_endpoint(lambda: [Sample("queue_messages", 3, ("content",))])
    with answering_health("127.0.0.1", port, rig.library.catalog.bases, endpoint.answer):
        answer = httpx2.get(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_SECONDS, trust_env=False)
        found = parse(answer.text)
        assert found["holdfast_slots", "fulltext", "ready"] == 1.0
        assert found["holdfast_queue_messages", "content"] == 3.0
        assert httpx2.get(f"http://127.0.0.1:{port}/healthz", timeout=PATIENCE_SECONDS, trust_env=False).is_success


def make_endpoint(rig: Rig, **settings: str) -> MetricsEndpoint:
    rig.library._settings = Settings(**settings)  # type: ignore[arg-type]
    return rig.library.metrics_endpoint()


def test_a_role_needs_a_key_where_the_server_needs_one(rig: Rig) -> None:
    open_to_all = make_endpoint(rig)
    assert open_to_all.answer("", "").status is HTTPStatus.OK
    assert make_endpoint(rig, keys="on").answer("", "").status is HTTPStatus.UNAUTHORIZED
    assert make_endpoint(rig, host="0.0.0.0").answer("", "").status is HTTPStatus.UNAUTHORIZED  # noqa: S104
    _, reader = rig.library.keys.create("reader", "read", None)  # type: ignore[arg-type]
    _, limited = rig.library.keys.create("limited", "read", [rig.base.id])  # type: ignore[arg-type]
    assert open_to_all.answer("", "").status is HTTPStatus.UNAUTHORIZED
    assert open_to_all.answer("Bearer hf_wrong", "").status is HTTPStatus.UNAUTHORIZED
    assert open_to_all.answer(f"Bearer {limited}", "").status is HTTPStatus.FORBIDDEN
    assert open_to_all.answer(f"Bearer {reader}", "").status is HTTPStatus.OK


def test_a_role_with_a_token_needs_it(rig: Rig) -> None:
    endpoint = make_endpoint(rig, metrics_token="observe-me")  # noqa: S106 - of this test only
    assert endpoint.answer("", "").status is HTTPStatus.UNAUTHORIZED
    assert endpoint.answer("Bearer observe-you", "").status is HTTPStatus.UNAUTHORIZED
    assert endpoint.answer("Bearer observe-me", "").status is HTTPStatus.OK


def test_a_role_whose_database_is_away_says_so(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    def render(_: str) -> None:
        raise StoreError("upload_swept")

    endpoint = MetricsEndpoint(render, token="", needs_key=lambda: False, find_caller=lambda _: None)  # type: ignore[arg-type]
    assert endpoint.answer("", "").status is HTTPStatus.SERVICE_UNAVAILABLE
    assert "metrics.not_read" in caplog.text


def test_a_scheduler_without_queues_has_no_messages() -> None:
    class Plain:
        needs_rings = True

    assert list(sample_queues(Plain())) == []  # type: ignore[arg-type]


def test_the_guard_shows_the_metrics_of_its_works(database_url: str) -> None:
    guard = Guard(Settings(database=database_url))
    invoices = guard.work("invoices")
    for number in range(3):
        job = invoices.admit(f"key-{number}").job
        assert job is not None
        invoices.perform(job, lambda run: run.key)
    invoices.admit("key-0")
    guard.reconcile()
    body, content_type = guard.metrics()
    found = parse(body.decode())
    assert found["holdfast_slots", "invoices", "ready"] == found["holdfast_commits_total", "invoices"] == 3.0
    assert found["holdfast_duplicates_total", "already_indexed"] == 1.0
    assert content_type.startswith("text/plain")
    guard.close()


def test_the_doctor_reports_and_corrects_wrong_totals(rig: Rig) -> None:
    rig.index("whales.md", TEXT)
    wrong = [["slots", "content", "ready", 5.0], ["slots", "fulltext", "failed", 1.0]]
    rig.store.database.write(lambda tx: tx.run(ADD_TOTALS, wrong), durable=True)
    (found,) = rig.library.doctor.check()
    assert (found.code, found.count, found.fixed) == ("total_differs", 2, 0)
    assert found.examples == ["content ready: 6 counted, 1 exist", "fulltext failed: 1 counted, 0 exist"]
    (fixed,) = rig.library.doctor.check(fix=True)
    assert fixed.fixed == 2
    assert rig.library.doctor.check() == []


def test_budgets_and_spent_tokens_are_shown_by_base_at_most_a_minute_old(rig: Rig, clock: FakeClock) -> None:
    name = 'Ada\'s "notes" \\ drafts'
    catalogue, memos = rig.library.catalog, rig.library.paid_cache
    base = catalogue.create_base(name, BaseSettings(budget_tokens=1000))

    def read() -> dict[tuple[str, ...], float]:
        return parse(rig.library.metrics().render().body.decode())

    assert (read()["holdfast_budget_tokens", name], read()["holdfast_spent_tokens", name]) == (1000.0, 0.0)
    bill = Charge(kind="embedding", model="m@1", texts=2, tokens_in=300, tokens_out=7, price=0.25)
    memos.settle([(row, bill) for row in memos.reserve(base, [(None, bill)])])
    cancelled = memos.reserve(base, [(None, bill)])
    memos.cancel(cancelled)
    clock.advance(timedelta(seconds=60))
    found = read()
    assert found["holdfast_spent_tokens", name] == found["holdfast_tokens_total", "embedding", "true"] == 307.0
    assert found["holdfast_cost_total", "embedding", "true"] == 0.25
    assert found["holdfast_texts_total", "embedding", "true"] == 2.0
    assert ("holdfast_budget_tokens", "shelf") not in found


def test_only_the_bases_that_spent_the_largest_part_of_their_budget_are_shown(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budgets, "MAX_BASES", 2)
    for number in range(4):
        base = rig.library.catalog.create_base(f"base-{number}", BaseSettings(budget_tokens=1000))
        bill = Charge(kind="embedding", model="m@1", texts=1, tokens_in=100 * number)
        rig.library.paid_cache.reserve(base, [(None, bill)])
    found = parse(rig.library.metrics().render().body.decode())
    assert {key[1] for key in found if key[0] == "holdfast_spent_tokens"} == {"base-2", "base-3"}


def test_counters_of_a_kind_are_zero_before_their_first_increase(rig: Rig) -> None:
    rig.put("whales.md", TEXT)
    found = parse(rig.library.metrics().render().body.decode())
    assert found["holdfast_claims_total", "content"] == found["holdfast_lease_losses_total", "content"] == 0.0
    assert found["holdfast_failures_total", "other", "content"] == 0.0


def test_the_stages_of_real_attempts_are_shown_by_kind(rig: Rig) -> None:
    rig.index("whales.md", TEXT)
    rig.index("stones.md", "# Stones\n\nGranite is hard.\n")
    found = parse(rig.library.metrics().render().body.decode())
    counts = {key[1:]: value for key, value in found.items() if key[0] == "holdfast_stage_seconds_count"}
    assert counts == {("content", "reading"): 2.0, ("content", "chunking"): 2.0}


def index_rows(rig: Rig) -> dict[tuple[str, str], float]:
    found = parse(rig.library.metrics().render().body.decode())
    return {(key[1], key[2]): value for key, value in found.items() if key[0] == "holdfast_index_rows"}


def test_the_rows_of_indexes_are_counted_in_the_background_by_base_and_kind(rig: Rig) -> None:
    rig.index("whales.md", TEXT)
    assert index_rows(rig) == {}
    rig.library.sweep(100)
    assert index_rows(rig) == {("shelf", "fulltext"): 1.0}
    rig.index("stones.md", "# Stones\n\nGranite is hard.\n")
    rig.delete("whales.md")
    rig.work()
    rig.index("sand.md", "# Sand\n\nSand is fine.\n")
    rig.library.sweep(100)
    assert index_rows(rig) == {("shelf", "fulltext"): 2.0}


class Ticking:
    """A clock on which every batch takes as long as a step may."""

    now = 0.0

    def monotonic(self) -> float:
        self.now += sizes.STEP_SECONDS
        return self.now


def test_a_long_count_continues_in_the_next_clean_up_and_keeps_the_last_result(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        rig.index(f"note-{number}.md", f"Note {number}.")
    monkeypatch.setattr(sizes, "LARGEST_BATCH", 1)
    counter = rig.library._row_counter
    monkeypatch.setattr(counter, "_clock", Ticking())
    counter.step()
    assert index_rows(rig) == {}
    while not index_rows(rig):
        counter.step()
    assert index_rows(rig) == {("shelf", "fulltext"): 4.0}
    rig.index("note-4.md", "Note 4.")
    counter.step()
    assert index_rows(rig) == {("shelf", "fulltext"): 4.0}


def test_small_bases_are_shown_together(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_rows_module, "MAX_BASES", 1)
    bases = [rig.library.catalog.create_base(name, BaseSettings()) for name in ("large", "small", "other")]
    rows = {Total("index_rows", "vector", base.key): 10.0 - place for place, base in enumerate(bases)}
    rig.store.replace_totals("index_rows", rows | {Total("index_rows", "vector", "999"): 50.0})
    assert index_rows(rig) == {("large", "vector"): 10.0, ("other", "vector"): 17.0}
    rig.store.replace_totals("index_rows", {})
    assert index_rows(rig) == {}
