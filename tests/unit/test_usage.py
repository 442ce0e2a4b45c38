"""What an attempt used: its JSON, its wait, and the readings of the process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest

from holdfast.clock import micros
from holdfast.engine.attempt_meter import AttemptMeter, PeakMemory, Spent
from holdfast.engine.effects import SlotChange, compute_wait_ms, make_slot_event
from holdfast.engine.states import SlotState, Verb
from holdfast.engine.usage import UNKNOWN_USAGE, Usage, add_attempt
from holdfast.process_usage import ProcessUsage, read_cpu_ms, read_peak_kb, reset_peak
from tests.unit.slot_factory import NOW, ago, make_slot

S = SlotState
MIB = 1 << 20
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def wait_of_claim(before_state: SlotState, **before: Any) -> int:
    claimed = make_slot(S.RUNNING, claimed_at=NOW)
    return compute_wait_ms(SlotChange(Verb.CLAIM, make_slot(before_state, **before), claimed))


def test_the_event_of_an_attempt_contains_its_usage() -> None:
    usage = Usage(cpu_ms=12.3456, peak_kb=4096, ran_ms=20, waited_ms=7, written=1, kept=9, removed=1)
    event = make_slot_event(SlotChange(Verb.COMPLETE, make_slot(S.RUNNING), make_slot(S.READY), usage=usage))
    assert event.parsed_data == {
        "from": "running", "to": "ready", "cpu_ms": 12.346, "peak_kb": 4096, "ran_ms": 20.0, "waited_ms": 7,
        "written": 1, "kept": 9, "removed": 1,
    }  # fmt: skip


def test_the_event_of_an_attempt_without_rows_has_no_numbers_of_rows() -> None:
    members = json.loads(f"{{{Usage(cpu_ms=1).format_members()}}}")
    assert members == {"cpu_ms": 1, "peak_kb": 0, "ran_ms": 0, "waited_ms": 0}


def test_attempts_add_up_and_the_highest_memory_counts() -> None:
    first = Usage(cpu_ms=1, peak_kb=900, ran_ms=2, waited_ms=3, written=4, kept=6)
    assert first.add(Usage(cpu_ms=10, peak_kb=800, ran_ms=20, waited_ms=30, written=5, kept=10, removed=2)) == Usage(
        cpu_ms=11, peak_kb=900, ran_ms=22, waited_ms=33, written=9, kept=6, removed=2
    )


def test_an_attempt_that_fails_before_it_counts_rows_does_not_change_them() -> None:
    assert Usage(written=4, kept=6).add(Usage(cpu_ms=1)) == Usage(cpu_ms=1, written=4, kept=6)


def test_the_usage_of_an_attempt_is_added_to_the_stored_one() -> None:
    stored = add_attempt(None, Usage(cpu_ms=1.5, written=2))
    assert add_attempt(stored, UNKNOWN_USAGE) == stored
    both = add_attempt(stored, Usage(cpu_ms=2.25, written=3, kept=2))
    assert both is not None
    assert Usage.parse(both) == Usage(cpu_ms=3.75, written=5)


def test_a_slot_waits_from_the_moment_when_it_was_queued() -> None:
    assert wait_of_claim(S.QUEUED, queued_at=ago(seconds=90)) == 90_000


def test_a_repeated_attempt_waits_from_the_moment_when_it_was_due() -> None:
    assert wait_of_claim(S.WAITING, queued_at=ago(hours=1), due_at=ago(seconds=2), progress_at=ago(minutes=9)) == 2_000


def test_a_slot_whose_worker_was_lost_waits_from_the_last_progress_of_that_worker() -> None:
    assert wait_of_claim(S.QUEUED, queued_at=ago(hours=1), progress_at=ago(minutes=3)) == 180_000


def test_a_wait_is_never_negative() -> None:
    assert wait_of_claim(S.QUEUED, queued_at=NOW + micros(timedelta(seconds=1))) == 0


def test_a_meter_adds_the_share_of_a_batch_and_the_processes_that_worked_for_the_attempt() -> None:
    moments = iter([100.0, 100.25])
    meter = AttemptMeter(lambda: next(moments), shared=Spent(cpu_ms=40, ran_ms=50))
    meter.add_child(ProcessUsage(cpu_ms=1000, peak_kb=70_000))
    meter.add_child(ProcessUsage(cpu_ms=500, peak_kb=60_000))
    usage = meter.read(waited_ms=3)
    assert usage.cpu_ms >= 1540
    assert (usage.peak_kb, usage.ran_ms, usage.waited_ms) == (70_000, 300, 3)


def test_a_meter_measures_each_stage_and_the_preparation() -> None:
    moments = iter([10.0, 11.0, 11.5, 11.75, 12.0, 12.0, 13.0, 13.0])
    meter = AttemptMeter(lambda: next(moments), shared=Spent(cpu_ms=1, ran_ms=5))
    meter.start_stage("reading")  # a second after the start
    meter.start_stage("chunking")
    meter.start_stage("reading")
    assert meter.read(waited_ms=0).stages == (("prepare", 5), ("reading", 750), ("chunking", 250))
    assert meter.read(waited_ms=0).stages == (("prepare", 5), ("reading", 1750), ("chunking", 250))


def test_stages_are_in_the_event_of_an_attempt_and_not_in_the_sum_of_all() -> None:
    attempt = Usage(ran_ms=3, stages=(("reading", 1.23456), ("chunking", 2)))
    assert json.loads(f"{{{attempt.format_members()}}}")["stages"] == {"reading": 1.235, "chunking": 2}
    stored = add_attempt(None, attempt)
    assert stored is not None
    both = add_attempt(stored, attempt)
    assert both is not None
    assert (Usage.parse(stored).stages, Usage.parse(both)) == ((), Usage(ran_ms=6))


@on_linux
def test_the_peak_of_a_long_attempt_does_not_count_for_the_next_one() -> None:
    memory = PeakMemory()
    memory.start_batch()
    memory.start_attempt()
    os.urandom(64 * MIB)
    large = memory.read(ran_ms=1000)
    memory.start_attempt()
    small = memory.read(ran_ms=1000)
    memory.stop()
    assert large - small > 60 * 1024


@on_linux
def test_a_worker_that_starts_an_attempt_leaves_the_peak_of_another_thread_alone() -> None:
    first, second = PeakMemory(), PeakMemory()
    before = read_peak_kb()
    first.start_batch()
    os.urandom(64 * MIB)
    second.start_batch()
    small, large = second.read(ran_ms=1000), first.read(ran_ms=1000)
    first.stop()
    second.stop()
    assert large - small > 60 * 1024
    assert before > 0


@on_linux
def test_the_processor_time_and_the_peak_of_another_process_can_be_read() -> None:
    work = (
        "x = bytes(range(256)) * 262144; [hash(str(n)) for n in range(300000)]; del x; print('', flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert read_cpu_ms(child.pid) >= 50
        assert read_peak_kb(child.pid) > 64 * 1024
        reset_peak(child.pid)
        assert read_peak_kb(child.pid) < 64 * 1024
        child.communicate(b"\n")
    assert (read_cpu_ms(child.pid), read_peak_kb(child.pid)) == (0, 0)
