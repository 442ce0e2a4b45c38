"""The simulation of the queue repeats itself, loses nothing and does nothing twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from bench.queue_model import Kind, Load, Outcome, SimulatedQueue
from bench.queue_simulation import base_sizes, main, place

KINDS = (
    Kind(name="content", needs=None, seconds=0.3, workers=2),
    Kind(name="vector", needs="content", seconds=0.2, workers=2),
)
QUIET = Load(
    kinds=KINDS, changes=2.0, seconds=600, rings_lost=0, attempts_failing=0, workers_dying=0, workers_pausing=0
)


def simulate(load: Load, seed: int = 1) -> Outcome:
    """Simulate the time of the load, and then the end of the work that had arrived."""
    queue = SimulatedQueue(load, Random(seed))
    queue.run()
    return queue.drain()


def assert_every_slot_ended_once(outcome: Outcome) -> None:
    assert outcome.left == 0
    assert outcome.built + outcome.failed == len(KINDS) * (outcome.arrived - outcome.rejected)


def test_the_same_seed_gives_the_same_result_and_another_seed_another() -> None:
    load = Load(kinds=KINDS, changes=2.0, seconds=600)
    assert simulate(load) == simulate(load)
    assert simulate(load) != simulate(load, seed=2)


def test_without_disturbances_every_slot_takes_one_attempt_and_one_ring() -> None:
    outcome = simulate(QUIET)
    assert_every_slot_ended_once(outcome)
    assert outcome.arrived > 1000
    assert outcome.attempts == outcome.built
    assert outcome.rings <= 1.02 * outcome.attempts
    assert outcome.delay("vector", 0.95) < 10


@pytest.mark.parametrize(
    "disturbed",
    [
        replace(QUIET, rings_lost=0.3),
        replace(QUIET, attempts_failing=0.2),
        replace(QUIET, workers_dying=0.02, changes=0.5),
        replace(QUIET, workers_pausing=0.01, changes=0.5),
        replace(QUIET, outage=(60, 360)),
        replace(QUIET, backlog=2000),
    ],
    ids=["lost rings", "failing attempts", "dying workers", "pausing workers", "outage", "backlog"],
)
def test_every_slot_ends_once_in_spite_of_disturbances(disturbed: Load) -> None:
    assert_every_slot_ended_once(simulate(disturbed))


def test_the_result_of_a_worker_that_lost_its_slot_is_refused() -> None:
    outcome = simulate(replace(QUIET, workers_pausing=0.02, changes=0.5))
    assert outcome.refused > 0
    assert outcome.attempts >= outcome.built + outcome.refused


def test_a_worker_that_always_wakes_up_too_late_completes_nothing() -> None:
    many = tuple(replace(kind, workers=50) for kind in KINDS)  # so that another one has the slot by then
    outcome = simulate(replace(QUIET, kinds=many, workers_pausing=1.0, changes=0.01))
    assert outcome.built == 0
    assert outcome.refused > 0
    assert outcome.attempts == 4 * outcome.arrived


def test_a_slot_fails_after_as_many_attempts_as_the_rules_allow() -> None:
    outcome = simulate(replace(QUIET, attempts_failing=1.0, changes=0.1))
    assert outcome.built == 0
    assert outcome.attempts == 4 * outcome.arrived  # `content` fails, and `vector` with it


def test_an_outage_of_a_provider_uses_up_no_attempts() -> None:
    outcome = simulate(replace(QUIET, outage=(0, 1200)))
    assert outcome.failed == 0
    assert outcome.attempts > 2 * outcome.built


def test_nothing_is_claimed_while_the_queue_is_paused() -> None:
    load = replace(QUIET, paused=(0, 3600))
    queue = SimulatedQueue(load, Random(1))
    assert queue.run().attempts == 0
    assert queue.outcome.rings <= 2  # an arrival at the same moment as the pause
    assert_every_slot_ended_once(queue.drain())


def test_a_quota_limits_the_accepted_documents() -> None:
    outcome = simulate(replace(QUIET, per_day=100))
    assert outcome.arrived - outcome.rejected == 100
    assert_every_slot_ended_once(outcome)


def test_urgent_documents_pass_a_backlog() -> None:
    outcome = simulate(replace(QUIET, backlog=3000))
    assert outcome.delay("urgent", 0.95) < 30 < outcome.delay("vector", 0.95)


def test_every_document_of_a_base_is_on_one_database() -> None:
    sizes = base_sizes(1_000_000, 1000)
    filled = place(sizes, 10)
    assert sum(filled) == sum(sizes)
    assert filled[0] >= sizes[0]
    assert sum(sizes) == pytest.approx(1_000_000, rel=0.01)


@pytest.mark.proof
def test_the_page_about_scale_shows_what_the_program_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    printed = capsys.readouterr().out.partition("; simulated in")[0]
    page = (Path(__file__).resolve().parents[2] / "docs/scale.md").read_text("utf-8")
    assert printed in page


def test_the_program_meets_its_goals_with_few_documents(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["10000000", "--databases", "3", "--bases", "1000"]) == 0
    assert "all goals met" in capsys.readouterr().out
