"""Every role and every server fails in turn, and the result is the same as on one machine."""

from __future__ import annotations

import signal
import time
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx2
import pytest

from tests.support.cluster import Cluster
from tests.support.processes import until
from tests.support.servers import Postgres, SeaweedFS
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.support.celery_worker import CeleryWorker
    from tests.support.object_storage import ObjectStorage
    from tests.support.servers import Server

pytestmark = [pytest.mark.postgres, pytest.mark.celery, pytest.mark.s3]

SUBJECTS = ("krill", "granite", "harbour", "lantern", "anchor", "current")
ACTIVE = ["queued", "indexing", "deleting"]
READERS = ("content", "source", "base", "bulk", "rollout")
INDEXERS = ("vector", "fulltext")


class Result(NamedTuple):
    """What users can see at the end."""

    hits: dict[str, list[tuple[str, int]]]  # name and generation of the documents that each question finds
    jobs: Counter[tuple[str, str, str]]  # operation, name and outcome
    findings: list[str]  # codes, of the doctor
    files: int  # in the blob store


class Users:
    """Add, change, reindex and delete documents, through any web server that answers."""

    def __init__(self, addresses: list[str]) -> None:
        self.addresses = addresses
        self._documents: dict[str, int] = {}

    def request(self, method: str, path: str, **options: Any) -> Any:
        """Send a request until a server answers it. A repeated request has the same key, so it counts once."""
        headers = {"Idempotency-Key": uuid.uuid4().hex} if method == "POST" else {}
        answers: list[httpx2.Response] = []

        def answered() -> bool:
            try:
                answer = httpx2.request(
                    method, f"{self.addresses[0]}/api/v1{path}", headers=headers, timeout=30, trust_env=False, **options
                )
            except httpx2.TransportError:
                self.addresses.append(self.addresses.pop(0))
                return False
            answers.append(answer)
            return answer.status_code < 500 and "in_flight" not in answer.text

        until(answered, f"no server answers {method} {path}")
        return answers[-1].raise_for_status().json()

    def start_round(self, number: int) -> None:
        """Add three documents; change, reindex and delete those of the round before."""
        for place in range(3):
            self._upload(f"{number}-{place}.md", f"The {SUBJECTS[(number + place) % 6]} of round {number} is {place}.")
        if number:
            before = [f"{number - 1}-{place}.md" for place in range(3)]
            self._upload(before[0], f"The changed {SUBJECTS[number % 6]} is new.")
            self.request("POST", f"/bases/sea/documents/{self._documents[before[1]]}:reindex")
            self.request("POST", f"/bases/sea/documents/{self._documents[before[2]]}:delete")

    def _upload(self, name: str, text: str) -> None:
        params = {"name": name, "on_duplicate": "replace"}
        (reply,) = self.request("POST", "/bases/sea/documents", params=params, content=text.encode())["replies"]
        self._documents[name] = reply["document"]

    def end_round(self) -> None:
        until(lambda: not self._jobs(ACTIVE), f"jobs are still active: {self._jobs(ACTIVE)}")

    def _jobs(self, states: list[str] | None = None) -> list[dict[str, Any]]:
        listed = self.request("GET", "/jobs", params={"page_size": 200} | ({"state": states} if states else {}))
        items: list[dict[str, Any]] = listed["items"]
        return items

    def hits(self, question: str) -> list[tuple[str, int]]:
        found = self.request("POST", "/bases/sea/search", json={"query": question, "limit": 20})["hits"]
        return [(hit["title"], hit["generation"]) for hit in found]

    def jobs(self) -> Counter[tuple[str, str, str]]:
        return Counter((job["operation"], job["name"], job["outcome"]) for job in self._jobs())


def use(cluster: Cluster, users: Users, faults: Sequence[Callable[[], object]]) -> Result:
    """Run a round for each fault, and return what users see at the end."""
    for number, fault in enumerate(faults):
        users.start_round(number)
        fault()
        users.end_round()
    findings = until_clean(cluster)
    blobs = cluster.library.blobs.list_blobs("", 1_000)
    hits = {subject: users.hits(subject) for subject in SUBJECTS}
    return Result(hits, users.jobs(), findings, len(blobs))


def until_clean(cluster: Cluster) -> list[str]:
    """Wait until the garbage collector has removed what is no longer used; return what the doctor still finds."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (found := cluster.examine()) and time.monotonic() < deadline:
        time.sleep(1)
    return found


@pytest.fixture(params=["valkey", "rabbitmq"])
def broker(request: pytest.FixtureRequest) -> Server:
    server: Server = request.getfixturevalue(request.param)
    return server


@pytest.fixture(scope="module")
def own_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A server that no other module uses, because this test kills it."""
    with Postgres(tmp_path_factory.mktemp("own-postgres")) as server:
        yield server


@pytest.fixture(scope="module")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedFS]:
    """Replaces the server that other modules share."""
    with SeaweedFS(tmp_path_factory.mktemp("own-seaweedfs")) as server:
        yield server


@pytest.fixture
def embedded(tmp_path: Path, own_postgres: Postgres) -> Iterator[Cluster]:
    database = own_postgres.create_database(f"embedded_{uuid.uuid4().hex[:8]}")
    with Cluster(tmp_path / "one", database, "", scheduler="embedded") as cluster:
        yield cluster


@pytest.fixture
def cluster(tmp_path: Path, own_postgres: Postgres, broker: Server, s3: ObjectStorage) -> Iterator[Cluster]:
    database = own_postgres.create_database(f"many_{uuid.uuid4().hex[:8]}")
    data = f"s3://{s3.create_bucket()}/files"
    prefix = f"t{uuid.uuid4().hex[:8]}"
    with Cluster(
        tmp_path / "many", database, broker.url, queue_prefix=prefix, data=data, s3_endpoint=s3.endpoint
    ) as cluster:
        yield cluster


def test_all_roles_and_servers_fail_in_turn_without_a_trace(
    cluster: Cluster, embedded: Cluster, broker: Server, own_postgres: Postgres, seaweedfs: SeaweedFS
) -> None:
    webs = [cluster.run("web", "--port", "0") for _ in range(2)]
    reconcilers = [cluster.run("reconcile") for _ in range(2)]
    readers = [cluster.celery_worker(READERS, concurrency=2)]
    indexers = [cluster.celery_worker(INDEXERS, pool="threads", concurrency=2)]
    users = Users([cluster.address_of(web) for web in webs])

    def kill_web() -> None:
        webs[0].send(signal.SIGKILL)

    def kill_reconciler() -> None:
        reconcilers.pop(0).send(signal.SIGKILL)

    def kill_workers(workers: list[CeleryWorker], kinds: tuple[str, ...], **options: Any) -> Callable[[], None]:
        def kill() -> None:
            workers.pop().kill()
            workers.append(cluster.celery_worker(kinds, **options))

        return kill

    def crash_and_restart(server: Server) -> Callable[[], None]:
        def crash() -> None:
            server.crash()
            server.restart()

        return crash

    def replace_reconcilers() -> None:
        for old in reconcilers:
            assert old.finish() == 0
        reconcilers[:] = [cluster.run("reconcile")]

    faults = [
        lambda: None,
        kill_workers(readers, READERS, concurrency=2),
        kill_workers(indexers, INDEXERS, pool="threads", concurrency=2),
        lambda: readers[0].kill_child(),  # noqa: PLW0108 - the worker of that time
        kill_reconciler,
        crash_and_restart(broker),  # Valkey has lost its messages then
        crash_and_restart(own_postgres),
        crash_and_restart(seaweedfs),
        kill_web,
        replace_reconcilers,
    ]
    after_faults = use(cluster, users, faults)
    one_machine = Users([embedded.address_of(embedded.run("serve", "--port", "0"))])
    calm = use(embedded, one_machine, [lambda: None] * len(faults))
    assert after_faults == calm
    assert after_faults.findings == []
    assert after_faults.files == 3 * len(faults) - (len(faults) - 1)
