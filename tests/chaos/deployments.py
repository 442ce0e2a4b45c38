"""The deployments: one machine on SQLite, and separate roles on PostgreSQL, with and without a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.chaos.disks import Disk
from tests.chaos.system import System
from tests.support.cutting_proxy import CuttingProxy
from tests.support.object_storage import FaultyProxy, ObjectStorage
from tests.support.servers import Postgres, RabbitMQ, SeaweedFS, Server, Valkey

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.chaos.history import History

HOLDFAST = ("-m", "holdfast.cli")
CELERY = ("-m", "celery", "-A", "holdfast.celery", "worker", "--loglevel=INFO", "--without-gossip", "--without-mingle")
PREFIX = "files"
FILES_MEGABYTES = 64


class OneMachine(System):
    """`holdfast serve` with its workers: SQLite, and files in a folder."""

    @property
    def largest_jump(self) -> int:
        """The database has the clock of the process that uses it. So work may wait for as long as a jump."""
        return 20

    files_disk: Disk

    def stored_files(self) -> list[str]:
        return sorted(path.name for path in self.files_disk.folder.rglob("*") if path.is_file())

    def _start_servers(self) -> None:
        self.home.mkdir(mode=0o700)
        self.files_disk = self._held.enter_context(Disk(self.home / "files", FILES_MEGABYTES))

    def _start_roles(self) -> None:
        self.add_role("serve-1", *HOLDFAST, "serve", "--port", "{port}")


class SeparateRoles(System):
    """Two web servers, two reconcilers and three workers on PostgreSQL, with the files in a bucket."""

    postgres: Postgres
    cutter: CuttingProxy  # between PostgreSQL and one process of each kind
    seaweedfs: SeaweedFS
    s3: FaultyProxy  # between the bucket and all processes
    scheduler = "embedded"

    def __init__(self, folder: Path, history: History) -> None:
        super().__init__(folder, history)
        self._bucket = ""
        self._credentials: dict[str, str] = {}
        self._storage: ObjectStorage | None = None

    @property
    def dsn(self) -> str:
        return self.postgres.dsn

    @property
    def library(self) -> str:
        return self.postgres.url

    @property
    def largest_jump(self) -> int:
        """Leases are compared by the clock of PostgreSQL."""
        return 24 * 3600

    @property
    def settings(self) -> dict[str, object]:
        return {
            **super().settings,
            "database": self.postgres.url,
            "data": f"s3://{self._bucket}/{PREFIX}",
            "s3_endpoint": self.s3.endpoint,
            "scheduler": self.scheduler,
            "broker": self.broker_url,
            "database_retry": "5s",
        }

    @property
    def broker_url(self) -> str:
        return ""

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | self._credentials

    def stored_files(self) -> list[str]:
        assert self._storage is not None
        keys = {key.rpartition("/")[2] for key in self._storage.contents(self._bucket)}
        return sorted(
            "-".join(reversed(key.split("-"))) for key in keys
        )  # the digest is first in a name, last in a key

    def _start_servers(self) -> None:
        self.disk.folder.chmod(0o755)  # PostgreSQL may run as another user
        self.postgres = self._held.enter_context(Postgres(self.disk.folder / "postgres"))
        self.cutter = self._held.enter_context(CuttingProxy(self.postgres.port))
        self.seaweedfs = self._held.enter_context(SeaweedFS(self.folder / "seaweedfs"))
        self._storage = ObjectStorage(self.seaweedfs)
        self._bucket = self._storage.create_bucket()
        self._credentials = self._storage.environment()
        self.s3 = self._held.enter_context(FaultyProxy(self.seaweedfs.url))

    def _start_roles(self) -> None:
        behind_cutter = {"HOLDFAST_DATABASE": self.cutter.address(self.postgres.url)}
        for number, more in ((1, {}), (2, behind_cutter)):
            self.add_role(f"web-{number}", *HOLDFAST, "web", "--port", "{port}", **more)
            self.add_role(f"reconcile-{number}", *HOLDFAST, "reconcile", **more)
        self._add_worker("worker-1", behind_cutter)
        self._add_worker("worker-2", {})
        # No other fault meets this worker: libfaketime holds a semaphore that a killed process would not release.
        self._add_worker("clocked-1", self.clock.environment)

    def _add_worker(self, name: str, more: Mapping[str, str]) -> None:
        self.add_role(name, *HOLDFAST, "worker", "--workers", "1", **more)


class WithBroker(SeparateRoles):
    """Celery workers, which get their work from a broker."""

    scheduler = "celery"
    broker: Server

    @property
    def broker_url(self) -> str:
        return self.broker.url

    def _start_servers(self) -> None:
        super()._start_servers()
        self.broker = self._held.enter_context(self._make_broker())

    def _make_broker(self) -> Server:
        raise NotImplementedError

    def _add_worker(self, name: str, more: Mapping[str, str]) -> None:
        self.add_role(name, *CELERY, "--concurrency=1", "-n", f"{name}@%h", **more)


class CeleryRedis(WithBroker):
    """With Valkey, which is empty after each start."""

    def _make_broker(self) -> Server:
        return Valkey(self.folder / "valkey")


class CeleryRabbitMQ(WithBroker):
    """With RabbitMQ, whose queues survive a crash."""

    def _make_broker(self) -> Server:
        return RabbitMQ(self.folder / "rabbitmq")


DEPLOYMENTS: Mapping[str, type[System]] = {
    "sqlite": OneMachine,
    "postgres": SeparateRoles,
    "celery-redis": CeleryRedis,
    "celery-rabbitmq": CeleryRabbitMQ,
}
