"""`CeleryScheduler` keeps a few rings in each queue of a real broker, also when the broker goes down and comes back."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from kombu import Connection

from holdfast.celery import scheduler as module
from holdfast.celery.app import make_queue
from holdfast.celery.scheduler import CeleryScheduler
from holdfast.engine import OwnerId, Ring, SlotId, SlotKey
from holdfast.settings import Settings
from tests.support.processes import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.servers import Server

pytestmark = pytest.mark.celery

ROOM = 6  # two workers with three rings for each


@pytest.fixture(params=["valkey", "rabbitmq"])
def broker(request: pytest.FixtureRequest) -> Server:
    server: Server = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def settings(broker: Server, tmp_path: Path) -> Settings:
    return Settings(broker=broker.url, workers=2, rings_per_worker=3, queue_prefix=f"t{tmp_path.name[-20:]}")


@pytest.fixture
def scheduler(settings: Settings) -> Iterator[CeleryScheduler]:
    scheduler = CeleryScheduler(settings)
    yield scheduler
    scheduler.stop()


class Seconds:
    """Replaces the module `time` of the scheduler."""

    now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Seconds:
    seconds = Seconds()
    monkeypatch.setattr(module, "time", seconds)
    return seconds


def ring(number: int = 1, kind: str = "vector") -> Ring:
    return Ring(slot=SlotId(number), owner=OwnerId(number), key=SlotKey("sea", f"doc_{number}", kind), generation=1)


def uncounted() -> int:
    raise AssertionError("the broker counts its messages; the database is not asked")


def count_messages(settings: Settings, kind: str = "vector") -> int:
    with Connection(settings.broker) as connection:
        count: int = make_queue(settings, kind)(connection.default_channel).queue_declare().message_count
        return count


def test_each_queue_has_room_for_the_rings_of_all_workers(scheduler: CeleryScheduler, settings: Settings) -> None:
    assert scheduler.room("vector", uncounted) == scheduler.room("graph", uncounted) == ROOM
    scheduler.carry([ring(1), ring(2), ring(3, "graph")])
    assert scheduler.room("vector", uncounted) == ROOM - 2
    assert scheduler.room("graph", uncounted) == ROOM - 1
    until(lambda: count_messages(settings) == 2, "the queue does not have both rings")
    assert count_messages(settings, "graph") == 1


def test_a_full_queue_is_counted_again_at_once(scheduler: CeleryScheduler, settings: Settings) -> None:
    scheduler.room("vector", uncounted)
    scheduler.carry([ring(number) for number in range(ROOM)])
    until(lambda: count_messages(settings) == ROOM, "not all rings arrive")
    assert scheduler.room("vector", uncounted) == 0
    purge(settings)
    assert scheduler.room("vector", uncounted) == ROOM


def test_the_count_of_a_queue_with_room_is_used_for_a_while(
    scheduler: CeleryScheduler, settings: Settings, seconds: Seconds
) -> None:
    scheduler.room("vector", uncounted)
    scheduler.carry([ring(1)])
    until(lambda: count_messages(settings) == 1, "the ring does not arrive")
    purge(settings)
    assert scheduler.room("vector", uncounted) == ROOM - 1
    seconds.now += module.COUNT_SECONDS
    assert scheduler.room("vector", uncounted) == ROOM


def purge(settings: Settings) -> None:
    with Connection(settings.broker) as connection:
        make_queue(settings, "vector")(connection.default_channel).purge()


def test_an_outage_is_logged_once_and_rings_follow_when_it_ends(
    scheduler: CeleryScheduler, settings: Settings, broker: Server, seconds: Seconds, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast")
    assert scheduler.room("vector", uncounted) == ROOM
    broker.crash()
    scheduler.carry([ring(1)])
    scheduler.carry([ring(2)])
    assert logged(caplog) == ["broker.unreachable"]
    assert "Documents are accepted, and their work waits in the database." in caplog.text
    broker.start()
    assert scheduler.room("vector", uncounted) == 0, "the broker is asked again too early"
    seconds.now += module.RETRY_SECONDS
    assert scheduler.room("vector", uncounted) == ROOM
    scheduler.carry([ring(3)])
    until(lambda: count_messages(settings) == 1, "the ring is not sent")
    assert logged(caplog) == ["broker.unreachable", "broker.reachable"]


def test_an_outage_is_noticed_when_messages_are_counted(
    scheduler: CeleryScheduler, broker: Server, seconds: Seconds, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler.room("vector", uncounted)
    broker.crash()
    assert scheduler.room("graph", uncounted) == 0
    seconds.now += module.RETRY_SECONDS
    assert scheduler.room("graph", uncounted) == 0
    assert logged(caplog) == ["broker.unreachable"]
    broker.start()
    seconds.now += module.RETRY_SECONDS
    assert scheduler.room("graph", uncounted) == ROOM


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage().partition(" ")[0] for record in caplog.records if record.name == "holdfast"]


def test_the_messages_of_each_used_queue_are_counted(scheduler: CeleryScheduler) -> None:
    assert scheduler.count_messages() == {}
    scheduler.carry([ring(1), ring(2)])
    until(lambda: scheduler.count_messages() == {"vector": 2}, "not all rings arrive")


def test_no_messages_are_counted_while_the_broker_is_down(
    scheduler: CeleryScheduler, broker: Server, seconds: Seconds
) -> None:
    scheduler.carry([ring(1)])
    broker.stop()
    assert scheduler.count_messages() == {}
    broker.start()
    assert scheduler.count_messages() == {}  # it tries again later
    seconds.now += module.RETRY_SECONDS
    scheduler.room("vector", uncounted)
    assert "vector" in scheduler.count_messages()
