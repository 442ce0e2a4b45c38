"""Settings to running parts; the only module that names concrete classes."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sqlalchemy.engine import make_url

from holdfast import __version__
from holdfast.clock import SystemClock
from holdfast.db.notify import FileBell, MemoryBell, PostgresBell
from holdfast.engine.store.factory import open_store
from holdfast.errors import BadSettings
from holdfast.logs import HTTP_CLIENT, log_to_stderr

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.auth.idempotency import Repeats
    from holdfast.auth.keys import Keys
    from holdfast.bases.archives import Archives
    from holdfast.bases.cards import StudyCards
    from holdfast.bases.lifecycle import Bases
    from holdfast.bases.probe import Trials
    from holdfast.catalog.blobs import Blobs
    from holdfast.catalog.erasure import Erasure
    from holdfast.catalog.file_records import FileRecords
    from holdfast.catalog.orphan_blobs import Leftovers
    from holdfast.catalog.repository import Catalogue
    from holdfast.clock import Clock
    from holdfast.db.database import Transaction
    from holdfast.db.notify import Bell
    from holdfast.doctor.doctor import Doctor
    from holdfast.documents.add import Adding
    from holdfast.documents.bulk import Matching
    from holdfast.documents.details import Dossiers
    from holdfast.documents.folder_sync import Syncing
    from holdfast.documents.items import Items
    from holdfast.documents.operations import Requesting
    from holdfast.documents.queries import Shelves
    from holdfast.documents.remove import Removing
    from holdfast.documents.source_sync import World
    from holdfast.engine.reconciler import Reconciler
    from holdfast.engine.schedulers.base import Scheduler
    from holdfast.engine.store.sql_store import SqlStore
    from holdfast.engine.task import Indexer
    from holdfast.engine.worker import LocalCrew, Parts
    from holdfast.events.log import Log
    from holdfast.indexes.base import Tools
    from holdfast.indexes.graph.graph_queries import Portraits
    from holdfast.indexes.graph.graph_view import Drawings
    from holdfast.indexes.index_slot import ChunkIndexer
    from holdfast.indexes.registry import Indexes
    from holdfast.llm.base import Unmetered
    from holdfast.llm.circuit_breaker import Pausing
    from holdfast.llm.paid_cache import Memos
    from holdfast.llm.prices import Price
    from holdfast.search.answers import Asking
    from holdfast.search.search import Searching
    from holdfast.settings import Settings
    from holdfast.sources.folder_limits import FolderLimits
    from holdfast.webhooks.deliveries import Deliveries
    from holdfast.webhooks.encryption import SecretCipher
    from holdfast.webhooks.endpoints import Webhooks

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
        from holdfast.engine.worker import Parts, no_sweep

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
    """The parts that work with documents on one store; each is loaded and made when it is first used.

    A command that lists documents does not pay for a reader of PDF files or for a client of a language model.
    """

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
        self._settings = settings
        self._embedder = embedder
        self._speaker = speaker
        self._clock = clock or SystemClock()
        store.costs = self._costs

    def _costs(self, tx: Transaction, owners: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
        return self.indexes.costs(tx, owners)

    # ------------------------------------------------------------ what is stored

    @cached_property
    def catalogue(self) -> Catalogue:
        """Bases, items and recipes."""
        from holdfast.catalog.repository import Catalogue

        return Catalogue(self.store.database)

    @cached_property
    def blobs(self) -> Blobs:
        """The files of documents."""
        from holdfast.catalog.blobs import Blobs

        return Blobs(Path(self._settings.data), alone=not _shared(self._settings))

    @cached_property
    def files(self) -> FileRecords:
        """The records of files that no item names."""
        from holdfast.catalog.file_records import FileRecords
        from holdfast.engine.liveness import holder_name, known_dead

        return FileRecords(self.store.database, self.blobs, holder=holder_name(), dead=known_dead)

    @cached_property
    def leftovers(self) -> Leftovers:
        """The files that are to be removed."""
        from holdfast.catalog.orphan_blobs import Leftovers

        return Leftovers(self.store.database, self.files, self._clock)

    @cached_property
    def erasure(self) -> Erasure:
        """What is deleted and not yet gone from the disk."""
        from holdfast.catalog.erasure import Erasure

        return Erasure(self.store.database, compact_limit=self._settings.compact_limit * 2**20)

    @cached_property
    def memos(self) -> Memos:
        """The cache of paid answers, and the ledger."""
        from holdfast.llm.paid_cache import Memos

        return Memos(self.store.database, prices(self._settings))

    # ------------------------------------------------------------ indexes and search

    @cached_property
    def tools(self) -> Tools:
        """What indexes are made with: providers that pause while they are down, and write on the ledger."""
        settings = self._settings
        embedder = self._embedder or open_embedder(settings)
        speaker = self._speaker or open_speaker(settings)
        return self._tools(
            _pausing(embedder, settings.embedding_url, self._clock), _pausing(speaker, settings.chat_url, self._clock)
        )

    def _tools(self, embedder: Unmetered, speaker: Unmetered) -> Tools:
        from holdfast.indexes.base import Tools
        from holdfast.llm.metering import Metered
        from holdfast.llm.offline import OfflineProvider

        return Tools(
            database=self.store.database,
            memos=self.memos,
            embedder=Metered(embedder, self.memos),
            speaker=Metered(speaker, self.memos),
            here=Metered(OfflineProvider(), self.memos),
            words_memory=self._settings.words_memory,
        )

    @cached_property
    def indexes(self) -> Indexes:
        """The registry of indexes."""
        from holdfast.indexes.registry import Indexes

        return Indexes(self.tools, self.catalogue)

    @cached_property
    def searching(self) -> Searching:
        """The search."""
        from holdfast.search.search import Searching

        return Searching(self.store.database, self.indexes)

    @cached_property
    def portraits(self) -> Portraits:
        """Entities of the graph."""
        from holdfast.indexes.graph.graph_queries import Portraits

        return Portraits(self.store.database)

    @cached_property
    def drawings(self) -> Drawings:
        """The graph as it is drawn."""
        from holdfast.indexes.graph.graph_view import Drawings

        return Drawings(self.store.database)

    @cached_property
    def asking(self) -> Asking:
        """Answers."""
        from holdfast.search.answers import Asking

        return Asking(self.searching, self.portraits, self.tools.speaker_of)

    # ------------------------------------------------------------ documents and bases

    @cached_property
    def items(self) -> Items:
        """Documents by name, number and metadata."""
        from holdfast.documents.items import Items

        return Items(self.store, self.catalogue)

    @cached_property
    def adding(self) -> Adding:
        """Adding documents."""
        from holdfast.documents.add import Adding

        return Adding(self.store, self.catalogue, self.files, self.indexes)

    @cached_property
    def removing(self) -> Removing:
        """Deleting documents."""
        from holdfast.documents.remove import Removing

        return Removing(self.store, self.blobs)

    @cached_property
    def requesting(self) -> Requesting:
        """Operations on documents: index, retry, cancel, refresh."""
        from holdfast.documents.operations import Requesting

        return Requesting(self.store, self.adding)

    @cached_property
    def matching(self) -> Matching:
        """Operations on everything that matches a filter."""
        from holdfast.documents.bulk import Matching

        return Matching(self.store, self.requesting, self.removing)

    @cached_property
    def shelves(self) -> Shelves:
        """Lists of documents, and single ones."""
        from holdfast.documents.queries import Shelves

        return Shelves(self.store, self.blobs, self.indexes)

    @cached_property
    def dossiers(self) -> Dossiers:
        """What indexes know of a document."""
        from holdfast.documents.details import Dossiers

        return Dossiers(self.shelves)

    @cached_property
    def world(self) -> World:
        """Which folders and servers may be read."""
        from holdfast.documents.source_sync import World
        from holdfast.sources.address_policy import Reach
        from holdfast.sources.folder import FolderRules

        return World(
            reach=Reach.parse(self._settings.fetch_allow),
            rules=FolderRules(limits=own_data(self._settings)),
            roots=tuple(map(Path, self._settings.allowed_roots)),
            keyed=self.keys.exist,
        )

    @cached_property
    def syncing(self) -> Syncing:
        """Folders that are kept in step with a base."""
        from holdfast.documents.folder_sync import Syncing

        return Syncing(self.store, self.adding, self.requesting, self.world)

    @cached_property
    def bases(self) -> Bases:
        """Creating, changing and deleting bases."""
        from holdfast.bases.lifecycle import Bases

        return Bases(self.store, self.catalogue, self.indexes, self.removing)

    @cached_property
    def archives(self) -> Archives:
        """Export and import of bases."""
        from holdfast.bases.archives import Archives, Parts

        return Archives(Parts(self.store, self.blobs, self.bases, self.adding, __version__))

    @cached_property
    def cards(self) -> StudyCards:
        """Study cards."""
        from holdfast.bases.cards import StudyCards

        return StudyCards(self.store, self.indexes)

    @cached_property
    def trials(self) -> Trials:
        """Tests of providers; they observe no pause and wait less long."""
        from holdfast.bases.probe import Trials

        settings = self._settings
        hosts = {"embedding": settings.embedding_url, "chat": settings.chat_url}
        tools = self._tools(
            self._embedder or open_embedder(settings, A_TRIAL), self._speaker or open_speaker(settings, A_TRIAL)
        )
        return Trials(tools, {role: host for role, url in hosts.items() if (host := urlsplit(url).hostname)})

    @property
    def doctor(self) -> Doctor:
        """The check of every store."""
        from holdfast.doctor.doctor import Doctor, Parts

        return Doctor(
            Parts(
                store=self.store,
                catalogue=self.catalogue,
                blobs=self.blobs,
                leftovers=self.leftovers,
                indexes=self.indexes,
                adding=self.adding,
                requesting=self.requesting,
                erasure=self.erasure,
            )
        )

    # ------------------------------------------------------------ keys, events, webhooks

    @cached_property
    def keys(self) -> Keys:
        """Keys of the server."""
        from holdfast.auth.keys import Keys

        return Keys(self.store.database)

    @cached_property
    def repeats(self) -> Repeats:
        """Answers to requests that are sent again."""
        from holdfast.auth.idempotency import Repeats

        return Repeats(self.store.database)

    @cached_property
    def log(self) -> Log:
        """The event log."""
        from holdfast.events.log import Log

        return Log(self.store.database)

    @cached_property
    def _cipher(self) -> SecretCipher:
        from holdfast.webhooks.encryption import SecretCipher

        return SecretCipher(self._settings.secret_key, Path(self._settings.home))

    @cached_property
    def webhooks(self) -> Webhooks:
        """Addresses that receive events."""
        from holdfast.sources.address_policy import WEBHOOK_ALLOW, Reach
        from holdfast.webhooks.endpoints import Webhooks

        reach = Reach.parse(self._settings.webhook_allow, WEBHOOK_ALLOW)
        return Webhooks(self.store.database, self.log, self._cipher, reach)

    @cached_property
    def deliveries(self) -> Deliveries:
        """The outbox of webhooks."""
        from holdfast.webhooks.deliveries import Deliveries

        return Deliveries(self.store.database, self.log, self._cipher)

    # ------------------------------------------------------------ work

    def sweep(self, limit: int) -> int:
        """Run the periodic clean-up once."""
        from holdfast.bases.cleanup import Cleanup

        return Cleanup(
            store=self.store,
            indexes=self.indexes,
            bases=self.bases,
            archives=self.archives,
            removing=self.removing,
            requesting=self.requesting,
            leftovers=self.leftovers,
            erasure=self.erasure,
        ).run(limit)

    def indexers(self) -> Mapping[str, Indexer]:
        """Return what builds each kind of slot."""
        from holdfast.bases.cards import CARDS, CardsIndexer
        from holdfast.bases.rollout import ROLLOUT, RolloutIndexer
        from holdfast.documents.add import SOURCE
        from holdfast.documents.source_sync import SourceIndexer
        from holdfast.indexes.base import CONTENT
        from holdfast.indexes.content_slot import ContentIndexer
        from holdfast.indexes.graph.merging import MERGING, MergingIndexer

        database, home = self.store.database, Path(self._settings.home)
        return {
            CONTENT: ContentIndexer(database, self.catalogue, self.blobs, self.indexes.sweeper(), home),
            SOURCE: SourceIndexer(
                self.store,
                self.catalogue,
                self.world,
                items=self.items,
                adding=self.adding,
                removing=self.removing,
                requesting=self.requesting,
            ),
            CARDS: CardsIndexer(database),
            MERGING: MergingIndexer(self.tools, self.catalogue),
            ROLLOUT: RolloutIndexer(self.store, self.catalogue, self.indexes, self.adding),
            **{kind: self._chunked(kind) for kind in self.indexes.kinds},
        }

    def _chunked(self, kind: str) -> ChunkIndexer:
        """Return what builds an index; a base whose embedding model is gone fails as a whole."""
        from holdfast.indexes.index_slot import ChunkIndexer
        from holdfast.indexes.vector.index import HOPELESS, VectorIndex

        return ChunkIndexer(
            self.indexes[kind],
            self.store.database,
            self.catalogue,
            hopeless=HOPELESS if kind == VectorIndex.kind else frozenset(),
            given_up=self.store.rules.retry.given_up,
        )


def own_data(settings: Settings) -> FolderLimits:
    """Return the files and folders that we write ourselves, which are no source of documents."""
    from holdfast.sources.folder_limits import FolderLimits

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


def open_embedder(settings: Settings, patience: timedelta | None = None) -> Unmetered:
    """Return what embeds: an endpoint, or this machine."""
    if not settings.embedding_url:
        from holdfast.llm.offline import OfflineProvider

        return OfflineProvider()
    from holdfast.llm.openai import PATIENCE, Endpoint, OpenAIProvider

    return OpenAIProvider(
        Endpoint(
            base_url=settings.embedding_url,
            key=settings.embedding_key,
            embedding_model=settings.embedding_model,
            timeout=patience or PATIENCE,
        )
    )


def open_speaker(settings: Settings, patience: timedelta | None = None) -> Unmetered:
    """Return what speaks: an endpoint, or nobody."""
    if not settings.chat_url:
        from holdfast.llm.offline import OfflineProvider

        return OfflineProvider()
    from holdfast.llm.openai import PATIENCE, Endpoint, OpenAIProvider

    return OpenAIProvider(
        Endpoint(
            base_url=settings.chat_url,
            key=settings.chat_key,
            chat_model=settings.chat_model,
            timeout=patience or PATIENCE,
        )
    )


def prices(settings: Settings) -> dict[str, Price]:
    """Return what the models cost, by their names."""
    from holdfast.llm.prices import Price

    return {
        settings.embedding_model: Price(read=settings.embedding_price),
        settings.chat_model: Price(read=settings.chat_price_read, written=settings.chat_price_written),
    }


def _pausing(provider: Unmetered, url: str, clock: Clock) -> Pausing:
    """Leave a provider alone while it is down; people know it by its models and its address."""
    from holdfast.llm.circuit_breaker import Pausing

    models = " and ".join(model for model in (provider.embedding_model, provider.chat_model) if model)
    name = " at ".join(part for part in (models, urlsplit(url).hostname) if part)
    return Pausing(provider, name, clock=clock)


def crew(settings: Settings, indexers: str | None = None) -> LocalCrew:
    """Make a crew that can be handed to any scheduler."""
    from holdfast.engine.worker import LocalCrew

    return LocalCrew(Recipe(settings=settings, indexers=indexers))


def open_scheduler(settings: Settings) -> Scheduler:
    """Make the scheduler that the settings name."""
    from holdfast.engine.schedulers.base import scheduler

    return scheduler(settings.scheduler, workers=settings.workers, rings_per_worker=settings.rings_per_worker)


def reconciler(store: SqlStore, carrying: Scheduler, kinds: tuple[str, ...], settings: Settings) -> Reconciler:
    """Make a reconciler for a scheduler that is told of its work."""
    from holdfast.engine.reconciler import Reconciler

    return Reconciler(store, carrying, kinds, settings.rules, retention=settings.retention)
