"""Settings to running parts; the only module that names concrete classes."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy.engine import make_url

from holdfast.core.clock import SystemClock
from holdfast.errors import BadSettings
from holdfast.runtime.crew import LocalCrew, Parts
from holdfast.runtime.reconciler import Reconciler
from holdfast.schedulers.base import scheduler
from holdfast.stores.bells import FileBell, MemoryBell, PostgresBell
from holdfast.stores.opening import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.runtime.work import Indexer
    from holdfast.schedulers.base import Scheduler
    from holdfast.settings import Settings
    from holdfast.stores.bells import Bell
    from holdfast.stores.sql import SqlStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a process makes its parts: the settings, and where the indexers come from (`module:callable`)."""

    settings: Settings
    indexers: str

    def __call__(self) -> Parts:
        """Open the database and load the indexers, in the process that uses them."""
        settings = self.settings
        bell = open_bell(settings.database)
        return Parts(
            store=open_settings(settings, bell),
            bell=bell,
            indexers=load_indexers(self.indexers),
            clock=SystemClock(),
            rules=settings.rules,
            period=settings.period,
            retention=settings.retention,
            claim_batch=settings.claim_batch,
        )


def open_settings(settings: Settings, bell: Bell | None = None) -> SqlStore:
    """Open the store that the settings name; admissions wake whoever works on it."""
    bell = bell or open_bell(settings.database)
    return open_store(settings.database, rules=settings.rules, clock=SystemClock(), wake=bell.ring)


def open_bell(url: str) -> Bell:
    """Return the bell that belongs to a database."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "postgresql":
        return PostgresBell(url)
    if parsed.database and parsed.database != ":memory:":
        path = Path(parsed.database)
        return FileBell(path.with_name(path.name + "-bells"))
    return MemoryBell()


def load_indexers(where: str) -> Mapping[str, Indexer]:
    """Call `module:callable`, which returns the indexers by kind."""
    module, _, name = where.partition(":")
    try:
        made: Mapping[str, Indexer] = getattr(import_module(module), name)()
    except (ImportError, AttributeError, ValueError) as error:
        raise BadSettings(
            f"The indexers {where!r} cannot be loaded ({error}); name them as module:callable, with a callable that "
            "returns them by kind."
        ) from error
    return made


def crew(settings: Settings, indexers: str) -> LocalCrew:
    """Make a crew that can be handed to any scheduler."""
    return LocalCrew(Recipe(settings=settings, indexers=indexers))


def open_scheduler(settings: Settings) -> Scheduler:
    """Make the scheduler that the settings name."""
    return scheduler(settings.scheduler, workers=settings.workers, rings_per_worker=settings.rings_per_worker)


def reconciler(store: SqlStore, carrying: Scheduler, kinds: tuple[str, ...], settings: Settings) -> Reconciler:
    """Make a reconciler for a scheduler that is told of its work."""
    return Reconciler(store, carrying, kinds, settings.rules, retention=settings.retention)
