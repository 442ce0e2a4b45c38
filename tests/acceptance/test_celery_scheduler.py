"""Celery carries the work of documents: real workers, reconcilers and both brokers, which are killed in turn."""

from __future__ import annotations

import json
import os
import signal
from ast import literal_eval
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from kombu import Connection

from holdfast.celery.app import make_queue, task_name
from holdfast.settings import Settings
from tests.support.cluster import Cluster
from tests.support.collector import Collector
from tests.support.paid_provider import BAD_KEY, PaidProvider
from tests.support.processes import until
from tests.support.servers import ServerError, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.servers import Server

pytestmark = [pytest.mark.postgres, pytest.mark.celery]


@pytest.fixture(params=["valkey", "rabbitmq"])
def broker(request: pytest.FixtureRequest) -> Server:
    server: Server = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def paid() -> Iterator[PaidProvider]:
    with PaidProvider() as paid:
        yield paid


@pytest.fixture
def cluster(tmp_path: Path, postgres_url: str, broker: Server, paid: PaidProvider) -> Iterator[Cluster]:
    prefix = f"t{tmp_path.name[-20:]}"  # tests of a module share a broker
    embedding = {"embedding_url": paid.url, "embedding_key": paid.key, "embedding_model": paid.embedding_model}
    with Cluster(tmp_path, postgres_url, broker.url, queue_prefix=prefix, **embedding) as cluster:
        yield cluster


@pytest.mark.smoke
@pytest.mark.parametrize("broker", ["valkey"], indirect=True)
def test_documents_are_indexed_through_celery_with_few_messages(cluster: Cluster) -> None:
    names = [f"{number}.md" for number in range(30)]
    worker = cluster.celery_worker(concurrency=2)
    cluster.run("reconcile")
    cluster.add(*names)
    cluster.until_ready(30)
    assert cluster.found("tide") <= set(names)
    assert worker.log().count("succeeded in") < 60, "ninety slots need fewer messages"
    assert cluster.events("slot.failed") == []


@pytest.mark.parametrize("broker", ["valkey"], indirect=True)
def test_every_role_logs_json_lines_also_those_of_celery(cluster: Cluster, paid: PaidProvider) -> None:
    cluster.settings["log_format"] = "json"
    paid.always(BAD_KEY)
    worker, reconciler = cluster.celery_worker(concurrency=1), cluster.run("reconcile")
    cluster.add("a.md")
    until(lambda: "work.failed" in worker.log(), "the failure is not logged")
    worker.terminate()
    lines = worker.log().splitlines()
    told = [json.loads(line) for line in lines if line.startswith("{")]
    assert not any("INFO/" in line for line in lines), "Celery's own form; its banner and notes of signals are no log"
    (failed,) = (one for one in told if one.get("event") == "work.failed")
    assert (failed["kind"], failed["code"], failed["fence"]) == ("vector", "provider_key_refused", 1)
    assert failed.keys() >= {"job", "base", "owner", "generation", "holder"}
    assert {one["logger"] for one in told} >= {"celery.worker.strategy", "celery.app.trace", "holdfast"}
    assert all(json.loads(line) for line in reconciler.log.read_text().splitlines() if not line.startswith("Reconc"))


@pytest.mark.parametrize("broker", ["valkey"], indirect=True)
def test_a_celery_worker_sends_its_spans_before_it_ends(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with Collector() as collector:
        for name, value in collector.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
        worker = cluster.celery_worker(concurrency=1)
        cluster.run("reconcile")
        cluster.add("a.md")
        cluster.until_ready(1)
        assert collector.spans == []
        worker.terminate()
        assert {span.name for span in collector.spans} >= {"build content", "reading", "build vector", "call provider"}


class Canary:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_a_pickled_message_is_refused_and_not_executed(cluster: Cluster, broker: Server, tmp_path: Path) -> None:
    worker = cluster.celery_worker(concurrency=1)
    queue = make_queue(Settings.from_environment(cluster.environment), "content")
    with Connection(broker.url) as connection, connection.Producer() as producer:
        producer.publish(
            [[Canary(tmp_path / "executed")], {}, {}],
            serializer="pickle",
            headers={"task": task_name("content"), "id": "1", "lang": "py"},
            routing_key=queue.routing_key,
            declare=[queue],
        )
    until(lambda: "ContentDisallowed" in worker.log(), "the message is not refused")
    cluster.run("reconcile")
    cluster.add("a.md")
    cluster.until_ready(1)
    assert not (tmp_path / "executed").exists()


def test_a_killed_worker_loses_nothing(cluster: Cluster, paid: PaidProvider) -> None:
    paid.stall()
    first = cluster.celery_worker(concurrency=2)
    cluster.run("reconcile")
    cluster.add("a.md", "b.md", "c.md")
    paid.await_calls(1)
    first.kill()
    paid.release()
    cluster.celery_worker(concurrency=2)
    cluster.until_ready(3)
    assert cluster.found("tide") == {"a.md", "b.md", "c.md"}


def test_a_stopped_worker_returns_its_work_at_once(cluster: Cluster, paid: PaidProvider) -> None:
    paid.stall()
    first = cluster.celery_worker(concurrency=1)
    cluster.run("reconcile")
    cluster.add("a.md")
    paid.await_calls(1)
    paid.release()
    first.terminate()
    cluster.celery_worker(concurrency=1)
    cluster.until_ready(1)
    assert cluster.events("slot.expired") == [], "a drained worker releases its slots"


def test_workers_with_different_queues_share_the_work(cluster: Cluster) -> None:
    readers = cluster.celery_worker(["content"])
    indexers = cluster.celery_worker(["vector", "fulltext"])
    cluster.run("reconcile")
    cluster.add("a.md", "b.md")
    cluster.until_ready(2)
    assert "holdfast.vector[" not in readers.log()
    assert "holdfast.content[" not in indexers.log()


def test_work_waits_while_the_broker_is_down_and_continues_afterwards(cluster: Cluster, broker: Server) -> None:
    broker.crash()
    reconciler = cluster.run("reconcile")
    cluster.add("a.md", "b.md")
    until(lambda: "broker.unreachable" in reconciler.log.read_text(), "the reconciler does not notice")
    broker.start()
    cluster.celery_worker(concurrency=1)
    cluster.until_ready(2)


def test_rings_that_the_broker_lost_are_sent_again(cluster: Cluster, broker: Server) -> None:
    first, second = cluster.run("reconcile"), cluster.run("reconcile")
    cluster.add("a.md", "b.md", "c.md")
    until(lambda: any(slot_rung(cluster)), "nothing is rung")
    first.send(signal.SIGKILL)
    broker.crash()
    broker.start()
    cluster.celery_worker(concurrency=1)
    cluster.until_ready(3)
    assert second.finish() == 0


def slot_rung(cluster: Cluster) -> list[bool]:
    with cluster.library.store.database.reading() as tx:
        return [rung for (rung,) in tx.run_sql("SELECT rung_at IS NOT NULL FROM slots WHERE kind = 'content'")]


def test_inspect_active_shows_kind_base_and_document(cluster: Cluster, paid: PaidProvider) -> None:
    from holdfast.celery.app import make_app  # noqa: PLC0415

    paid.stall()
    cluster.celery_worker(concurrency=1)
    cluster.run("reconcile")
    cluster.add("a.md")
    paid.await_calls(1)
    app = make_app(cluster.library._settings, ())
    (tasks,) = app.control.inspect(timeout=10).active().values()
    paid.release()
    (task,) = tasks
    assert task["name"] in ("holdfast.content", "holdfast.vector")
    assert task["kwargs"].keys() == {"base", "document", "owner_id", "slot", "generation"}
    assert "tide" not in str(task)
    cluster.until_ready(1)


def test_flower_shows_kind_base_and_document(cluster: Cluster, paid: PaidProvider) -> None:
    paid.stall()
    flower = httpx2.Client(base_url=f"http://127.0.0.1:{free_port()}/api", auth=("user", "secret"))
    address = [f"--address={flower.base_url.host}", f"--port={flower.base_url.port}", "--basic-auth=user:secret"]
    running = cluster.run_module("celery", "-A", "holdfast.celery", "flower", *address)
    until(lambda: "Connected to" in running.log.read_text(), "Flower is not connected")
    cluster.celery_worker(concurrency=1, options=["-E"])
    cluster.run("reconcile")
    cluster.add("a.md")
    paid.await_calls(1)

    def started() -> list[dict[str, Any]]:
        return [task for task in flower.get("/tasks").json().values() if task["state"] == "STARTED"]

    until(started, "Flower shows no task")
    (task,) = started()
    paid.release()
    assert task["name"] == "holdfast.content"  # the answer to this ring continues with the other slots
    shown = literal_eval(task["kwargs"])
    assert shown.keys() == {"base", "document", "owner_id", "slot", "generation"}
    assert shown["base"] == cluster.base.key
    assert "tide" not in str(task)
    flower.close()
    cluster.until_ready(1)


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_every_pool_indexes_and_returns_its_work_when_it_stops(cluster: Cluster, paid: PaidProvider, pool: str) -> None:
    first = cluster.celery_worker(concurrency=2, pool=pool)
    cluster.run("reconcile")
    cluster.add("a.md", "b.md")
    cluster.until_ready(2)
    paid.stall()
    cluster.add("c.md")
    paid.await_calls(1)
    paid.release()
    first.terminate()
    cluster.celery_worker(concurrency=2, pool=pool)
    cluster.until_ready(3)
    assert cluster.events("slot.expired") == []


def test_a_killed_pool_process_is_replaced_and_loses_nothing(cluster: Cluster, paid: PaidProvider) -> None:
    paid.stall()
    worker = cluster.celery_worker(concurrency=1)
    cluster.run("reconcile")
    cluster.add("a.md")
    paid.await_calls(1)
    worker.kill_child()
    paid.release()
    cluster.until_ready(1)


def test_a_priority_that_changes_after_the_ring_was_sent_counts(cluster: Cluster) -> None:
    names = [f"{number}.md" for number in range(8)]
    cluster.run("reconcile")
    *_, last = cluster.add(*names)
    until(lambda: sum(slot_rung(cluster)) > 1, "nothing is rung")
    cluster.library.store.reprioritise([last], 0)
    cluster.celery_worker(["content"], concurrency=1, pool="solo")
    until(lambda: cluster.states().get(("content", "ready")) == 8, "the documents are not read")
    assert cluster.events("slot.claimed")[0] == "8"


@pytest.mark.parametrize("broker", ["valkey"], indirect=True)
@pytest.mark.parametrize("option", ["--time-limit", "--soft-time-limit"])
def test_a_time_limit_below_the_deadline_is_refused(cluster: Cluster, option: str) -> None:
    with pytest.raises(
        ServerError, match=rf"{option} is 60\.0 seconds, but .* HOLDFAST_DEADLINE .* set it to \d+ or more"
    ):
        cluster.celery_worker(options=[option, "60"])


@pytest.mark.parametrize("broker", ["valkey"], indirect=True)
def test_a_worker_of_an_older_version_leaves_the_work_and_ends(cluster: Cluster) -> None:
    worker = cluster.celery_worker(concurrency=1)
    cluster.run("reconcile")
    cluster.add("a.md")
    cluster.until_ready(1)
    with newer_schema(cluster):
        cluster.add("b.md")
        until(lambda: not worker.pids(), "the older worker does not end")
        assert "worker.too_old" in worker.log()
        assert cluster.states()["content", "queued"] == 1
    cluster.celery_worker(concurrency=1)
    cluster.until_ready(2)


@contextmanager
def newer_schema(cluster: Cluster) -> Iterator[None]:
    """Inside the block, the database looks as if a newer version had upgraded it."""
    database = cluster.library.store.database
    with database.writing(durable=True) as tx:
        ((version,),) = tx.run_sql("SELECT version_num FROM holdfast_version")
        tx.run_sql("UPDATE holdfast_version SET version_num = '9999'")
    yield
    with database.writing(durable=True) as tx:
        tx.run_sql("UPDATE holdfast_version SET version_num = %s", [version])


def test_wrong_credentials_are_reported_and_documents_still_accepted(cluster: Cluster, broker: Server) -> None:
    right = cluster.settings["broker"]
    cluster.settings["broker"] = broker.url.replace("guest:guest@", "guest:secret@").replace(
        "redis://", "redis://guest:secret@"
    )
    reconciler = cluster.run("reconcile")
    cluster.add("a.md")
    until(lambda: "broker.unreachable" in reconciler.log.read_text(), "the reconciler does not notice")
    (line,) = [line for line in reconciler.log.read_text().splitlines() if "broker.unreachable" in line]
    assert "Check the broker and HOLDFAST_BROKER" in line
    assert "secret" not in line
    reconciler.send(signal.SIGTERM)
    assert reconciler.ended() == 0
    cluster.settings["broker"] = right
    cluster.run("reconcile")
    cluster.celery_worker(concurrency=1)
    cluster.until_ready(1)


@pytest.mark.parametrize("broker", ["rabbitmq"], indirect=True)
def test_an_old_rabbitmq_is_reported_with_the_setting_that_it_needs(cluster: Cluster) -> None:
    worker = cluster.celery_worker(concurrency=1)
    assert "broker.consumer_timeout version=3.10" in worker.log()
    assert "Set `consumer_timeout = " in worker.log()
