"""Settings to running parts; the only module that names concrete classes."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sqlalchemy.engine import make_url

from holdfast import __version__
from holdfast.access.keys import Keys
from holdfast.access.repeats import Repeats
from holdfast.core.clock import SystemClock
from holdfast.errors import BadSettings, HoldfastError
from holdfast.events.deliveries import Deliveries
from holdfast.events.encryption import SecretCipher
from holdfast.events.log import Log
from holdfast.events.webhooks import Webhooks
from holdfast.indexes.base import Tools
from holdfast.indexes.chunked import ChunkIndexer
from holdfast.indexes.documents import CONTENT, ContentIndexer
from holdfast.indexes.drawing import Drawings
from holdfast.indexes.merging import MERGING, MergingIndexer, request_due
from holdfast.indexes.portrait import Portraits
from holdfast.indexes.registry import Indexes
from holdfast.indexes.vector import HOPELESS, VectorIndex
from holdfast.knowledge.adding import SOURCE
from holdfast.knowledge.archives import Archives
from holdfast.knowledge.archives import Parts as ArchiveParts
from holdfast.knowledge.bases import Bases
from holdfast.knowledge.cards import CARDS, Cards, CardsIndexer
from holdfast.knowledge.doctor import Doctor
from holdfast.knowledge.doctor import Parts as DoctorParts
from holdfast.knowledge.dossiers import Dossiers
from holdfast.knowledge.items import Items
from holdfast.knowledge.looking import SourceIndexer, World
from holdfast.knowledge.rolling import ROLLOUT, RolloutIndexer
from holdfast.knowledge.shelves import Shelves
from holdfast.knowledge.syncing import Syncing
from holdfast.knowledge.trying import Trials
from holdfast.library.blobs import Blobs
from holdfast.library.catalogue import Catalogue
from holdfast.library.file_records import FileRecords
from holdfast.library.leftovers import Leftovers
from holdfast.library.memos import Memos
from holdfast.library.metering import Metered
from holdfast.library.prices import Price
from holdfast.logs import HTTP_CLIENT, log_to_stderr
from holdfast.providers.offline import OfflineProvider
from holdfast.providers.openai import PATIENCE, Endpoint, OpenAIProvider
from holdfast.providers.pausing import Pausing
from holdfast.runtime.crew import LocalCrew, Parts, no_sweep
from holdfast.runtime.liveness import holder_name, known_dead
from holdfast.runtime.reconciler import Reconciler
from holdfast.schedulers.base import scheduler
from holdfast.search.asking import Asking
from holdfast.search.searching import Searching
from holdfast.sources.folder import FolderRules
from holdfast.sources.limits import FolderLimits
from holdfast.sources.reach import WEBHOOK_ALLOW, Reach
from holdfast.stores.bells import FileBell, MemoryBell, PostgresBell
from holdfast.stores.erasing import Erasing
from holdfast.stores.opening import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.core.clock import Clock
    from holdfast.providers.base import Unmetered
    from holdfast.runtime.work import Indexer
    from holdfast.schedulers.base import Scheduler
    from holdfast.settings import Settings
    from holdfast.stores.bells import Bell
    from holdfast.stores.sql import SqlStore

LOG = "%(asctime)s %(levelname)s %(message)s"
CHATTY = ("alembic", "uvicorn", HTTP_CLIENT, "httpcore2", "openai")  # below WARNING they log every step or call
A_TRIAL = timedelta(seconds=8)  # without a byte of answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a process makes its parts: the settings, and where the indexers come from (`module:callable`).

    Without `indexers` it works on documents, with all indexes there are.
    """

    settings: Settings
    indexers: str | None = None

    def __call__(self) -> Parts:
        """Open the database and load the indexers, in the process that uses them."""
        settings = self.settings
        if settings.log:
            show_log(settings.log)
        bell = open_bell(settings.database)
        store = open_settings(settings, bell)
        library = None if self.indexers else Library(store, settings)
        return Parts(
            store=store,
            bell=bell,
            indexers=library.indexers() if library else load_indexers(self.indexers or ""),
            sweep=library.sweep if library else no_sweep,
            clock=SystemClock(),
            rules=settings.rules,
            period=settings.period,
            retention=settings.retention,
            claim_batch=settings.claim_batch,
        )


def show_log(level: str) -> None:
    """Let this process tell on stderr what happens, in which detail; what is configured already stays so."""
    log_to_stderr(level.upper(), LOG)
    for name in () if level == "debug" else CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)


def open_settings(settings: Settings, bell: Bell | None = None) -> SqlStore:
    """Open the store that the settings name; admissions wake whoever works on it."""
    waking = open_bell(settings.database) if bell is None else bell
    store = open_store(settings.database, rules=settings.rules, clock=SystemClock(), wake=waking.ring)
    store.database.announce(open_news(settings.database), *([waking] if bell is None else []))
    return store


def open_bell(url: str) -> Bell:
    """Return the bell that wakes whoever works on a database."""
    return _bell(url, "bells", PostgresBell.CHANNEL)


def open_news(url: str) -> Bell:
    """Return the bell that wakes whoever looks on: it rings after every commit that is told of."""
    return _bell(url, "news", f"{PostgresBell.CHANNEL}_news")


def _bell(url: str, folder: str, channel: str) -> Bell:
    parsed = make_url(url)
    if parsed.get_backend_name() == "postgresql":
        return PostgresBell(url, channel)
    if parsed.database and parsed.database != ":memory:":
        path = Path(parsed.database)
        return FileBell(path.with_name(f"{path.name}-{folder}"))
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


class Library:
    """Documents and their indexes on one store: the parts that whoever adds, builds and searches share."""

    def __init__(
        self,
        store: SqlStore,
        settings: Settings,
        *,
        embedder: Unmetered | None = None,
        speaker: Unmetered | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.store = store
        self._home = Path(settings.home)
        self.catalogue = Catalogue(store.database)
        self.blobs = Blobs(Path(settings.data), alone=not _shared(settings))
        self.erasing = Erasing(store.database)
        self.files = FileRecords(store.database, self.blobs, holder=holder_name(), dead=known_dead)
        self.leftovers = Leftovers(store.database, self.files, clock or SystemClock())
        self.memos = Memos(store.database, prices(settings))
        self.tools = tools = Tools(
            database=store.database,
            memos=self.memos,
            embedder=Metered(_pausing(embedder or open_embedder(settings), settings.embedding_url, clock), self.memos),
            speaker=Metered(_pausing(speaker or open_speaker(settings), settings.chat_url, clock), self.memos),
            here=Metered(OfflineProvider(), self.memos),
            words_memory=settings.words_memory,
        )
        self.indexes = Indexes(tools, self.catalogue)
        store.costs = self.indexes.costs
        self.items = Items(store, self.catalogue, self.files, self.indexes)
        self.bases = Bases(store, self.catalogue, self.indexes, self.items)
        self.archives = Archives(ArchiveParts(store, self.blobs, self.bases, self.items, __version__))
        self.shelves = Shelves(store, self.blobs, self.indexes)
        self.dossiers = Dossiers(self.shelves)
        self.log = Log(store.database)
        self.keys = Keys(store.database)
        self.world = World(
            reach=Reach.parse(settings.fetch_allow),
            rules=FolderRules(limits=own_data(settings)),
            roots=tuple(map(Path, settings.allowed_roots)),
            keyed=self.keys.exist,
        )
        self.repeats = Repeats(store.database)
        cipher = SecretCipher(settings.secret_key, Path(settings.home))
        webhook_reach = Reach.parse(settings.webhook_allow, WEBHOOK_ALLOW)
        self.webhooks = Webhooks(store.database, self.log, cipher, webhook_reach)
        self.deliveries = Deliveries(store.database, self.log, cipher)
        self.syncing = Syncing(store, self.items, self.world)
        self.cards = Cards(store, self.indexes)
        self.searching = Searching(store.database, self.indexes)
        self.portraits = Portraits(store.database)
        self.drawings = Drawings(store.database)
        self.asking = Asking(self.searching, self.portraits, tools.speaker_of)
        self.trials = Trials(
            replace(
                tools,
                embedder=Metered(embedder or open_embedder(settings, A_TRIAL), self.memos),
                speaker=Metered(speaker or open_speaker(settings, A_TRIAL), self.memos),
            ),
            {
                role: host
                for role, url in (("embedding", settings.embedding_url), ("chat", settings.chat_url))
                if (host := urlsplit(url).hostname)
            },
        )

    @property
    def doctor(self) -> Doctor:
        """Whoever compares every store with what should be there, and says why things wait."""
        return Doctor(
            DoctorParts(self.store, self.catalogue, self.blobs, self.leftovers, self.indexes, self.items, self.erasing)
        )

    def sweep(self, limit: int) -> int:
        """Remove what nobody needs, and ask for what follows when documents have come to rest."""
        self.indexes.audit(limit)
        swept, failed = 0, []
        parts: list[Callable[[int], int]] = [
            self.indexes.sweeper().sweep,
            lambda _: request_due(self.store),
            self.bases.finish,
            self.archives.finish,
            self.items.finish,
            self.leftovers.sweep,
        ]
        for part in parts:
            try:
                swept = max(swept, part(limit))
            except HoldfastError as error:  # an index whose store is away must not hold up the deletes of all others
                failed.append(error)
        if swept < limit:  # else there is more, and one pass over the disk does for all of it
            self.erasing.erase()
        if failed:
            raise failed[0]
        return swept

    def indexers(self) -> Mapping[str, Indexer]:
        """Return what builds each kind of slot."""
        database = self.store.database
        content = ContentIndexer(database, self.catalogue, self.blobs, self.indexes.sweeper(), self._home)
        return {
            CONTENT: content,
            SOURCE: SourceIndexer(self.store, self.catalogue, self.items, self.world),
            CARDS: CardsIndexer(database),
            MERGING: MergingIndexer(self.tools, self.catalogue),
            ROLLOUT: RolloutIndexer(self.store, self.catalogue, self.indexes, self.items.adding),
            **{kind: self._chunked(kind) for kind in self.indexes.kinds},
        }

    def _chunked(self, kind: str) -> ChunkIndexer:
        """Return what builds an index; a base whose embedding model is gone fails as a whole."""
        return ChunkIndexer(
            self.indexes[kind],
            self.store.database,
            self.catalogue,
            hopeless=HOPELESS if kind == VectorIndex.kind else frozenset(),
            given_up=self.store.rules.retry.given_up,
        )


def own_data(settings: Settings) -> FolderLimits:
    """Return the files and folders that we write ourselves, which are no source of documents."""
    url = make_url(settings.database)
    file = url.database if url.get_backend_name() == "sqlite" else None
    return FolderLimits(
        folders=(Path(settings.home).absolute(), Path(settings.data).absolute()),
        files=(Path(file).absolute(),) if file and file != ":memory:" else (),
    )


def _shared(settings: Settings) -> bool:
    """Tell whether the folder of documents also contains the home folder or the database."""
    data, ours = Path(settings.data).absolute(), own_data(settings)
    return any(path.is_relative_to(data) for path in (Path(settings.home).absolute(), *ours.files))


def open_embedder(settings: Settings, patience: timedelta = PATIENCE) -> Unmetered:
    """Return what embeds: an endpoint, or this machine."""
    if not settings.embedding_url:
        return OfflineProvider()
    return OpenAIProvider(
        Endpoint(
            base_url=settings.embedding_url,
            key=settings.embedding_key,
            embedding_model=settings.embedding_model,
            timeout=patience,
        )
    )


def open_speaker(settings: Settings, patience: timedelta = PATIENCE) -> Unmetered:
    """Return what speaks: an endpoint, or nobody."""
    if not settings.chat_url:
        return OfflineProvider()
    return OpenAIProvider(
        Endpoint(base_url=settings.chat_url, key=settings.chat_key, chat_model=settings.chat_model, timeout=patience)
    )


def prices(settings: Settings) -> dict[str, Price]:
    """Return what the models cost, by their names."""
    return {
        settings.embedding_model: Price(read=settings.embedding_price),
        settings.chat_model: Price(read=settings.chat_price_read, written=settings.chat_price_written),
    }


def _pausing(provider: Unmetered, url: str, clock: Clock | None) -> Pausing:
    """Leave a provider alone while it is down; people know it by its models and its address."""
    models = " and ".join(model for model in (provider.embedding_model, provider.chat_model) if model)
    name = " at ".join(part for part in (models, urlsplit(url).hostname) if part)
    return Pausing(provider, name, clock=clock or SystemClock())


def crew(settings: Settings, indexers: str | None = None) -> LocalCrew:
    """Make a crew that can be handed to any scheduler."""
    return LocalCrew(Recipe(settings=settings, indexers=indexers))


def open_scheduler(settings: Settings) -> Scheduler:
    """Make the scheduler that the settings name."""
    return scheduler(settings.scheduler, workers=settings.workers, rings_per_worker=settings.rings_per_worker)


def reconciler(store: SqlStore, carrying: Scheduler, kinds: tuple[str, ...], settings: Settings) -> Reconciler:
    """Make a reconciler for a scheduler that is told of its work."""
    return Reconciler(store, carrying, kinds, settings.rules, retention=settings.retention)
