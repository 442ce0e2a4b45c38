"""Builds the objects of a process from the settings. Only this module names concrete classes.

Imports are inside the functions, because a command should load only the parts that it uses.
"""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sqlalchemy.engine import make_url

from holdfast import __version__
from holdfast.clock import SystemClock
from holdfast.db.notify import MemoryNotifier, PipeNotifier, PostgresNotifier
from holdfast.engine.store.factory import open_store
from holdfast.errors import MissingExtra
from holdfast.extras import importing_extra
from holdfast.logs import HTTP_CLIENT_LOGGER, TEXT, log_to_stderr
from holdfast.tracing import NO_TRACER, is_configured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from holdfast.auth.idempotency import IdempotencyStore
    from holdfast.auth.keys import KeyRepository
    from holdfast.auth.principal import Caller
    from holdfast.bases.archives import Archives
    from holdfast.bases.cards import StudyCards
    from holdfast.bases.lifecycle import Bases
    from holdfast.bases.probe import ProviderTester
    from holdfast.blobs.base import BlobStore
    from holdfast.catalog.erasure import Eraser
    from holdfast.catalog.file_holds import FileHolds
    from holdfast.catalog.file_records import FileRecords
    from holdfast.catalog.orphan_blobs import OrphanBlobCollector
    from holdfast.catalog.repository import Catalog
    from holdfast.clock import Clock
    from holdfast.db import ConnectionOptions
    from holdfast.db.database import Transaction
    from holdfast.db.notify import Notifier
    from holdfast.doctor.doctor import Doctor
    from holdfast.documents.add import DocumentAdder
    from holdfast.documents.bulk import BulkOperations
    from holdfast.documents.bulk_queue import QueueOperations
    from holdfast.documents.details import DocumentDetails
    from holdfast.documents.folder_sync import FolderSync
    from holdfast.documents.items import Items
    from holdfast.documents.operations import DocumentOperations
    from holdfast.documents.queries import DocumentQueries
    from holdfast.documents.remove import DocumentRemover
    from holdfast.documents.source_sync import SourceAccess
    from holdfast.engine.schedulers.base import Scheduler
    from holdfast.engine.store.sql_store import SqlStore
    from holdfast.engine.task import Indexer
    from holdfast.engine.worker import LocalWorker, WorkerParts
    from holdfast.events.log import EventLog
    from holdfast.indexes.base import Tools
    from holdfast.indexes.graph.graph_queries import GraphQueries
    from holdfast.indexes.graph.graph_view import GraphViewQueries
    from holdfast.indexes.index_slot import ChunkIndexer
    from holdfast.indexes.registry import IndexRegistry
    from holdfast.indexes.sizes import IndexRowCounter
    from holdfast.llm.base import UnmeteredProvider
    from holdfast.llm.circuit_breaker import CircuitBreaker
    from holdfast.llm.paid_cache import PaidAnswerCache
    from holdfast.llm.prices import Price
    from holdfast.metrics import BudgetGauges, Exposition, MetricsEndpoint, Sample
    from holdfast.moving.installation import Installation
    from holdfast.moving.move import Move, MoveOptions
    from holdfast.moving.target import Report
    from holdfast.search.answers import QuestionAnswerer
    from holdfast.search.calibrator import Calibrator
    from holdfast.search.search import Searcher
    from holdfast.settings import Settings
    from holdfast.sources.address_policy import Reach
    from holdfast.sources.folder_limits import FolderLimits
    from holdfast.tracing import Tracer
    from holdfast.webhooks.deliveries import DeliveryOutbox
    from holdfast.webhooks.encryption import SecretCipher
    from holdfast.webhooks.endpoints import WebhookRepository
    from holdfast.webhooks.sender import Sender

log = logging.getLogger("holdfast")

LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"
NOISY_LOGGERS = ("alembic", "uvicorn", HTTP_CLIENT_LOGGER, "httpcore2", "openai")  # below WARNING they log every call
PROBE_TIMEOUT = timedelta(seconds=8)  # without a byte of response


def configure_logging(level: str, log_format: str = TEXT) -> None:
    """Log to stderr at this level, unless the application has configured logging already."""
    log_to_stderr(level.upper(), LOG_FORMAT, log_format)
    for name in () if level == "debug" else NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)


def open_tracer() -> Tracer:
    """Return the tracer of a process that serves or works; it records nothing unless `OTEL_*` names a collector."""
    if not is_configured(os.environ):
        return NO_TRACER
    try:
        with importing_extra("otel"):
            from holdfast.otel import make_tracer
    except MissingExtra as error:
        log.warning("traces.not_recorded error=%s", error)
        return NO_TRACER
    return make_tracer(__version__)


def open_configured_store(settings: Settings, work_notifier: Notifier | None = None) -> SqlStore:
    """Open the store of the settings. Admissions notify workers; the store closes a notifier that it opened itself."""
    connections = settings.connections
    notifier = open_work_notifier(settings.database, connections) if work_notifier is None else work_notifier
    store = open_store(
        settings.database,
        rules=settings.rules,
        clock=SystemClock(),
        wake=notifier.notify,
        connections=connections,
    )
    own = [notifier] if work_notifier is None else []
    store.database.set_notifier(open_event_notifier(settings.database, connections), *own)
    return store


def open_work_notifier(url: str, connections: ConnectionOptions | None = None) -> Notifier:
    """Return the notifier that wakes the workers of a database."""
    return _open_notifier(url, "bells", PostgresNotifier.CHANNEL, connections)


def open_event_notifier(url: str, connections: ConnectionOptions | None = None) -> Notifier:
    """Return the notifier that wakes readers of events, after each commit that writes events."""
    return _open_notifier(url, "news", f"{PostgresNotifier.CHANNEL}_news", connections)


def _open_notifier(url: str, folder: str, channel: str, connections: ConnectionOptions | None) -> Notifier:
    parsed = make_url(url)
    if parsed.get_backend_name() == "postgresql":
        return PostgresNotifier(url, channel, connections)
    if parsed.database and parsed.database != ":memory:":
        path = Path(parsed.database)
        return PipeNotifier(path.with_name(f"{path.name}-{folder}"))
    return MemoryNotifier()


class Library:
    """The objects that work with documents on one store. Each is imported and created at first use.

    So a command that lists documents loads neither a PDF reader nor the client of a language model.
    """

    def __init__(
        self,
        store: SqlStore,
        settings: Settings,
        *,
        embedder: UnmeteredProvider | None = None,
        speaker: UnmeteredProvider | None = None,
        clock: Clock | None = None,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        self.store = store
        self.tracer = store.tracer = tracer
        self._settings = settings
        self._embedding_provider = embedder
        self._chat_provider = speaker
        self._clock = clock or SystemClock()
        store.estimate_costs = self._estimate_costs

    def _estimate_costs(self, tx: Transaction, owners: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
        return self.indexes.cost_estimator(tx, owners)

    @cached_property
    def catalog(self) -> Catalog:
        from holdfast.catalog.repository import Catalog

        return Catalog(self.store.database)

    @cached_property
    def blobs(self) -> BlobStore:
        from holdfast.blobs.base import BlobLocation, open_blob_store
        from holdfast.catalog.file_holds import make_holdable

        settings = self._settings
        own = (Path(settings.home).absolute(), *exclude_own_files(settings).own_files)
        location = BlobLocation(address=settings.data, own_paths=own, s3_endpoint=settings.s3_endpoint)
        return make_holdable(open_blob_store(location), self.file_holds)

    @cached_property
    def file_holds(self) -> FileHolds:
        """Keeps files from being removed during a backup."""
        from holdfast.catalog.file_holds import FileHolds
        from holdfast.engine.liveness import known_dead, make_holder_name

        return FileHolds(self.store.database, make_holder_name(), known_dead)

    @cached_property
    def file_records(self) -> FileRecords:
        """The records of files that no item names, such as unfinished uploads."""
        from holdfast.catalog.file_records import FileRecords
        from holdfast.engine.liveness import known_dead, make_holder_name

        return FileRecords(self.store.database, self.blobs, holder=make_holder_name(), dead=known_dead)

    @cached_property
    def orphan_blobs(self) -> OrphanBlobCollector:
        from holdfast.catalog.orphan_blobs import OrphanBlobCollector

        return OrphanBlobCollector(self.store.database, self.file_records, self._clock)

    @cached_property
    def erasure(self) -> Eraser:
        """Erases deleted data from the disk."""
        from holdfast.catalog.erasure import Eraser

        return Eraser(self.store.database, compact_limit=self._settings.compact_limit * 2**20)

    @cached_property
    def paid_cache(self) -> PaidAnswerCache:
        from holdfast.llm.paid_cache import PaidAnswerCache

        return PaidAnswerCache(self.store.database, prices_by_model(self._settings))

    @cached_property
    def tools(self) -> Tools:
        """The tools of indexes: providers with circuit breakers, which record paid calls in the ledger."""
        settings = self._settings
        embedding = self._embedding_provider or open_embedding_provider(settings)
        chat = self._chat_provider or open_chat_provider(settings)
        return self._make_tools(
            _with_circuit_breaker(embedding, settings.embedding_url, self._clock),
            _with_circuit_breaker(chat, settings.chat_url, self._clock),
        )

    def _make_tools(self, embedding: UnmeteredProvider, chat: UnmeteredProvider) -> Tools:
        from holdfast.indexes.base import Tools
        from holdfast.indexes.search_memory import SearchMemory
        from holdfast.llm.metering import MeteredProvider
        from holdfast.llm.offline import OfflineProvider

        return Tools(
            database=self.store.database,
            memos=self.paid_cache,
            embedder=MeteredProvider(embedding, self.paid_cache, self.tracer),
            speaker=MeteredProvider(chat, self.paid_cache, self.tracer),
            here=MeteredProvider(OfflineProvider(), self.paid_cache),
            search_memory=SearchMemory(self._settings.search_memory),
        )

    @cached_property
    def indexes(self) -> IndexRegistry:
        from holdfast.indexes.registry import IndexRegistry

        return IndexRegistry(self.tools, self.catalog)

    @cached_property
    def searcher(self) -> Searcher:
        from holdfast.search.search import Searcher

        return Searcher(self.store.database, self.indexes)

    @cached_property
    def calibrator(self) -> Calibrator:
        from holdfast.search.calibrator import Calibrator

        return Calibrator(self.store.database, self.indexes, self.catalog)

    @cached_property
    def graph_queries(self) -> GraphQueries:
        from holdfast.indexes.graph.graph_queries import GraphQueries

        return GraphQueries(self.store.database)

    @cached_property
    def graph_views(self) -> GraphViewQueries:
        from holdfast.indexes.graph.graph_view import GraphViewQueries

        return GraphViewQueries(self.store.database)

    @cached_property
    def answerer(self) -> QuestionAnswerer:
        from holdfast.search.answers import QuestionAnswerer

        return QuestionAnswerer(self.searcher, self.graph_queries, self.tools.speaker_of)

    @cached_property
    def items(self) -> Items:
        from holdfast.documents.items import Items

        return Items(self.store, self.catalog)

    @cached_property
    def adder(self) -> DocumentAdder:
        from holdfast.documents.add import DocumentAdder

        return DocumentAdder(self.store, self.catalog, self.file_records, self.indexes)

    @cached_property
    def remover(self) -> DocumentRemover:
        from holdfast.documents.remove import DocumentRemover

        return DocumentRemover(self.store, self.blobs)

    @cached_property
    def operations(self) -> DocumentOperations:
        from holdfast.documents.operations import DocumentOperations

        return DocumentOperations(self.store, self.adder)

    @cached_property
    def bulk_operations(self) -> BulkOperations:
        from holdfast.documents.bulk import BulkOperations

        return BulkOperations(self.store, self.operations, self.remover)

    @cached_property
    def queue_operations(self) -> QueueOperations:
        from holdfast.documents.bulk_queue import QueueOperations

        return QueueOperations(self.store, self.bulk_operations)

    @cached_property
    def document_queries(self) -> DocumentQueries:
        from holdfast.documents.queries import DocumentQueries

        return DocumentQueries(self.store, self.blobs, lambda base: self.indexes.check_enabled(base)[1])

    @cached_property
    def document_details(self) -> DocumentDetails:
        from holdfast.documents.details import DocumentDetails

        return DocumentDetails(self.document_queries)

    @cached_property
    def source_policy(self) -> SourceAccess:
        """Which folders and servers sources may read."""
        from holdfast.documents.source_sync import SourceAccess
        from holdfast.sources.address_policy import Reach
        from holdfast.sources.folder import FolderRules

        return SourceAccess(
            reach=Reach.parse(self._settings.fetch_allow),
            rules=FolderRules(limits=exclude_own_files(self._settings)),
            roots=tuple(map(Path, self._settings.allowed_roots)),
            keys_exist=self.keys.any_created,
        )

    @cached_property
    def folder_sync(self) -> FolderSync:
        from holdfast.documents.folder_sync import FolderSync

        return FolderSync(self.store, self.adder, self.operations, self.source_policy)

    @cached_property
    def bases(self) -> Bases:
        from holdfast.bases.lifecycle import Bases

        return Bases(self.store, self.catalog, self.indexes, self.bulk_operations)

    @cached_property
    def archives(self) -> Archives:
        from holdfast.bases.archives import ArchiveDependencies, Archives

        return Archives(ArchiveDependencies(self.store, self.blobs, self.catalog, self.bases, self.adder, __version__))

    @cached_property
    def cards(self) -> StudyCards:
        from holdfast.bases.cards import StudyCards

        return StudyCards(self.store, self.indexes)

    @cached_property
    def provider_probe(self) -> ProviderTester:
        """Tests providers, without circuit breakers and with a short timeout."""
        from holdfast.bases.probe import ProviderTester

        settings = self._settings
        hosts = {"embedding": settings.embedding_url, "chat": settings.chat_url}
        tools = self._make_tools(
            self._embedding_provider or open_embedding_provider(settings, PROBE_TIMEOUT),
            self._chat_provider or open_chat_provider(settings, PROBE_TIMEOUT),
        )
        return ProviderTester(tools, {role: host for role, url in hosts.items() if (host := urlsplit(url).hostname)})

    def metrics(self, *sources: Callable[[], Iterable[Sample]]) -> Exposition:
        """Return the metrics for Prometheus. `sources` yield samples of this process."""
        with importing_extra("metrics"):
            from holdfast.metrics import Exposition, SlotCollector

        own = (self._sample_erasures, self._sample_index_rows, self._budgets.sample)
        return Exposition(SlotCollector(self.store, (*own, *sources)))

    @cached_property
    def _budgets(self) -> BudgetGauges:
        from holdfast.metrics import BudgetGauges

        return BudgetGauges(self.catalog, self.paid_cache, self._clock)

    def metrics_endpoint(self, *sources: Callable[[], Iterable[Sample]]) -> MetricsEndpoint:
        """Return `/metrics` for a role that serves no other requests."""
        from holdfast.metrics import MetricsEndpoint

        settings = self._settings

        def find_caller(secret: str) -> Caller | None:
            key = self.keys.verify(secret)
            return None if key is None else key.caller

        return MetricsEndpoint(
            lambda accept: self.metrics(*sources).render(accept),
            token=settings.metrics_token,
            needs_key=lambda: settings.needs_key or self.keys.any_created(),
            find_caller=find_caller,
        )

    def _sample_index_rows(self) -> list[Sample]:
        from holdfast.metrics import sample_index_rows

        return sample_index_rows(self.store, self.catalog)

    def _sample_erasures(self) -> Iterator[Sample]:
        from holdfast.metrics import Sample

        pending = self.erasure.read_state().overwrite
        yield Sample("pending_erasures", 0 if pending is None else max(1, pending.documents))

    @property
    def doctor(self) -> Doctor:
        from holdfast.doctor.doctor import Doctor, DoctorDependencies

        return Doctor(
            DoctorDependencies(
                store=self.store,
                catalogue=self.catalog,
                blobs=self.blobs,
                orphan_blobs=self.orphan_blobs,
                indexes=self.indexes,
                adder=self.adder,
                operations=self.operations,
                erasure=self.erasure,
            )
        )

    @cached_property
    def keys(self) -> KeyRepository:
        from holdfast.auth.keys import KeyRepository

        return KeyRepository(self.store.database)

    @cached_property
    def idempotency(self) -> IdempotencyStore:
        from holdfast.auth.idempotency import IdempotencyStore

        return IdempotencyStore(self.store.database)

    @cached_property
    def event_log(self) -> EventLog:
        from holdfast.events.log import EventLog

        return EventLog(self.store.database)

    @cached_property
    def webhook_cipher(self) -> SecretCipher:
        from holdfast.webhooks.encryption import SecretCipher

        return SecretCipher(self._settings.secret_key, Path(self._settings.home))

    @cached_property
    def webhooks(self) -> WebhookRepository:
        from holdfast.webhooks.endpoints import WebhookRepository

        return WebhookRepository(self.store.database, self.event_log, self.webhook_cipher, self._webhook_reach)

    @property
    def _webhook_reach(self) -> Reach:
        from holdfast.sources.address_policy import WEBHOOK_ALLOW, Reach

        return Reach.parse(self._settings.webhook_allow, WEBHOOK_ALLOW)

    def webhook_sender(self, wake: Callable[[], None]) -> Sender:
        """Return a sender for this process; it calls `wake` after each attempt."""
        from holdfast.webhooks.http_post import PostOptions
        from holdfast.webhooks.sender import DeliveryTraces, Sender

        options = PostOptions(reach=self._webhook_reach)
        traces = DeliveryTraces(self.tracer, self.store.find_traceparents)
        return Sender(self.deliveries, options, wake=wake, traces=traces)

    @cached_property
    def deliveries(self) -> DeliveryOutbox:
        from holdfast.webhooks.deliveries import DeliveryOutbox

        return DeliveryOutbox(self.store.database, self.event_log, self.webhook_cipher)

    @cached_property
    def _row_counter(self) -> IndexRowCounter:
        from holdfast.indexes.sizes import IndexRowCounter

        return IndexRowCounter(self.store, self.catalog, self.indexes, self._clock)

    def sweep(self, limit: int) -> int:
        """Run the periodic clean-up once."""
        from holdfast.bases.cleanup import Cleanup

        return Cleanup(
            store=self.store,
            indexes=self.indexes,
            row_counter=self._row_counter,
            bases=self.bases,
            archives=self.archives,
            remover=self.remover,
            operations=self.operations,
            orphan_blobs=self.orphan_blobs,
            eraser=self.erasure,
            calibrator=self.calibrator,
        ).run(limit)

    def indexers(self) -> Mapping[str, Indexer]:
        """Return the indexer of each kind of slot."""
        from holdfast.bases.cards import CardsIndexer
        from holdfast.bases.removal import RemovalIndexer
        from holdfast.bases.rollout import RolloutIndexer
        from holdfast.bases.slots import BASE, CARDS, ROLLOUT
        from holdfast.documents.bulk_slot import BulkIndexer
        from holdfast.documents.requests import SOURCE_SLOT
        from holdfast.documents.source_sync import SourceIndexer
        from holdfast.engine.queue import BULK
        from holdfast.indexes.base import CONTENT
        from holdfast.indexes.content_slot import ContentIndexer
        from holdfast.indexes.graph.merging import MERGING, MergingIndexer

        database, home = self.store.database, Path(self._settings.home)
        return {
            CONTENT: ContentIndexer(database, self.catalog, self.blobs, self.indexes.garbage_collector(), home),
            SOURCE_SLOT: SourceIndexer(
                self.store,
                self.catalog,
                self.source_policy,
                items=self.items,
                adder=self.adder,
                remover=self.remover,
                operations=self.operations,
            ),
            BASE: RemovalIndexer(self.store, self.catalog, self.bases, self.remover),
            BULK: BulkIndexer(self.store, self.catalog, self.bulk_operations),
            CARDS: CardsIndexer(database),
            MERGING: MergingIndexer(self.tools, self.catalog),
            ROLLOUT: RolloutIndexer(self.store, self.catalog, self.indexes, self.adder),
            **{kind: self._make_chunk_indexer(kind) for kind in self.indexes.kinds},
        }

    def _make_chunk_indexer(self, kind: str) -> ChunkIndexer:
        """Return the indexer of an index. If the embedding model is gone, the whole base fails."""
        from holdfast.indexes.index_slot import ChunkIndexer
        from holdfast.indexes.vector.index import UNUSABLE_MODEL_CODES, VectorIndex

        return ChunkIndexer(
            self.indexes[kind],
            self.store.database,
            self.catalog,
            hopeless=UNUSABLE_MODEL_CODES if kind == VectorIndex.kind else frozenset(),
            given_up=self.store.rules.retry.exhausted,
        )


def open_installation(settings: Settings, address: str, data: str, clock: Clock | None = None) -> Installation:
    """Open a database and its files to copy them. The database is neither created nor upgraded."""
    from holdfast.engine.store.factory import new_job_id, open_database
    from holdfast.engine.store.sql_store import SqlStore
    from holdfast.moving.installation import Installation

    own = replace(settings, database=address, data=data)
    database = open_database(address, clock or SystemClock(), settings.connections)
    store = SqlStore(database, settings.rules, new_job_id)
    return Installation(address=address, data=data, library=Library(store, own, clock=clock))


@contextmanager
def opening_installation(settings: Settings) -> Iterator[Installation]:
    """Open the configured database and files for a backup or a restore."""
    installation = open_installation(settings, settings.database, settings.data)
    try:
        yield installation
    finally:
        installation.database.close()


@contextmanager
def opening_move(
    settings: Settings, source: str, target: str, *, files: str | None, options: MoveOptions, report: Report
) -> Iterator[Move]:
    """Open both ends of a move. `files` is the new place of the files; None: they stay where they are."""
    from holdfast.moving.move import Move

    ends = [open_installation(settings, source, settings.data)]
    try:
        ends.append(open_installation(settings, target, files or settings.data))
        yield Move(ends[0], ends[1], options, report)
    finally:
        for end in ends:
            end.database.close()


def exclude_own_files(settings: Settings) -> FolderLimits:
    """Return limits that exclude the files and folders of Holdfast itself from folder sources."""
    from holdfast.blobs.base import find_data_folder
    from holdfast.sources.folder_limits import FolderLimits

    folders = (Path(settings.home), find_data_folder(settings.data))
    url = make_url(settings.database)
    file = url.database if url.get_backend_name() == "sqlite" else None
    return FolderLimits(
        own_folders=tuple(folder.absolute() for folder in folders if folder is not None),
        own_files=(Path(file).absolute(),) if file and file != ":memory:" else (),
    )


def open_embedding_provider(settings: Settings, timeout: timedelta | None = None) -> UnmeteredProvider:
    return _open_provider(
        settings.embedding_url,
        settings.embedding_key,
        timeout,
        embedding_model=settings.embedding_model,
        version=settings.embedding_version,
    )


def open_chat_provider(settings: Settings, timeout: timedelta | None = None) -> UnmeteredProvider:
    return _open_provider(
        settings.chat_url, settings.chat_key, timeout, chat_model=settings.chat_model, version=settings.chat_version
    )


def _open_provider(url: str, key: str, timeout: timedelta | None, **model: Any) -> UnmeteredProvider:
    """Return the provider at an endpoint; without an address, the offline provider."""
    if not url:
        from holdfast.llm.offline import OfflineProvider

        return OfflineProvider()
    from holdfast.llm.openai import DEFAULT_TIMEOUT, Endpoint, OpenAIProvider

    return OpenAIProvider(Endpoint(base_url=url, key=key, timeout=timeout or DEFAULT_TIMEOUT, **model))


def prices_by_model(settings: Settings) -> dict[str, Price]:
    from holdfast.llm.prices import Price

    return {
        settings.embedding_model: Price(input_per_million=settings.embedding_price),
        settings.chat_model: Price(
            input_per_million=settings.chat_price_read, output_per_million=settings.chat_price_written
        ),
    }


def _with_circuit_breaker(provider: UnmeteredProvider, url: str, clock: Clock) -> CircuitBreaker:
    """Return a provider that pauses while the endpoint is down. Messages call it `model@host`."""
    from holdfast.llm.circuit_breaker import CircuitBreaker

    models = ",".join(model for model in (provider.embedding_model, provider.chat_model) if model)
    name = "@".join(part for part in (models, urlsplit(url).hostname) if part)
    return CircuitBreaker(provider, name, clock=clock)


def list_kinds() -> tuple[str, ...]:
    """Return the kinds of work: those of Holdfast, and one for each installed index. Opens nothing."""
    from holdfast.bases.slots import BASE, CARDS, ROLLOUT
    from holdfast.documents.requests import SOURCE_SLOT
    from holdfast.engine.queue import BULK
    from holdfast.indexes.base import CONTENT
    from holdfast.indexes.graph.merging import MERGING
    from holdfast.indexes.registry import list_installed_kinds

    return (CONTENT, SOURCE_SLOT, BASE, BULK, CARDS, MERGING, ROLLOUT, *list_installed_kinds())


def make_worker(settings: Settings, kinds: tuple[str, ...] = ()) -> LocalWorker:
    """Return a worker for documents, which any scheduler can run. Each process opens its own database.

    It claims slots of `kinds`, or of all kinds.
    """
    from holdfast.engine.worker import LocalWorker

    return LocalWorker(partial(open_worker_parts, settings, kinds))


def open_worker_parts(settings: Settings, kinds: tuple[str, ...] = ()) -> WorkerParts:
    """Open the database and load the indexers, in the process that uses them."""
    from holdfast.engine.worker import WorkerParts

    if settings.log:
        configure_logging(settings.log, settings.log_format)
    notifier = open_work_notifier(settings.database, settings.connections)
    store = open_configured_store(settings, notifier)
    library = Library(store, settings, tracer=open_tracer())
    return WorkerParts(
        store=store,
        notifier=notifier,
        indexers=library.indexers(),
        kinds=kinds,
        sweep=library.sweep,
        clock=SystemClock(),
        rules=settings.rules,
        period=settings.period,
        retention=settings.retention,
        claim_batch=settings.claim_batch,
        tracer=library.tracer,
    )


def open_scheduler(settings: Settings) -> Scheduler:
    from holdfast.engine.schedulers.base import make_scheduler

    return make_scheduler(settings)


def sample_queues(scheduler: Scheduler) -> Iterator[Sample]:
    """Yield the number of messages in each queue of the broker, if the scheduler has one."""
    from holdfast.engine.schedulers.base import MessageCounter
    from holdfast.metrics import Sample

    if isinstance(scheduler, MessageCounter):
        for kind, messages in scheduler.count_messages().items():
            yield Sample("queue_messages", messages, (kind,))


def open_polling_scheduler(settings: Settings) -> Scheduler:
    """Return the scheduler whose workers ask the database for work, whichever scheduler the settings name."""
    from holdfast.engine.schedulers.embedded import EmbeddedScheduler

    return EmbeddedScheduler(settings)


@contextmanager
def running_work(settings: Settings, library: Library) -> Iterator[None]:
    """Run the scheduler inside the block: its workers, or a reconciler if it delivers rings to workers elsewhere."""
    scheduler = open_scheduler(settings)
    scheduler.start(make_worker(settings))
    try:
        with running_reconciler(settings, library, scheduler) if scheduler.needs_rings else nullcontext():
            yield
    finally:
        scheduler.stop()


@contextmanager
def running_reconciler(settings: Settings, library: Library, scheduler: Scheduler) -> Iterator[None]:
    """Ring the workers of a scheduler inside the block."""
    from holdfast.engine.reconciler import Reconciler
    from holdfast.engine.reconciler_loops import ReconcilerLoops

    notifier = open_work_notifier(settings.database, settings.connections)
    reconciler = Reconciler(
        library.store, scheduler, list_kinds(), settings.rules, retention=settings.retention, sweep=library.sweep
    )
    loops = ReconcilerLoops(reconciler, notifier, settings.period)
    loops.start()
    try:
        yield
    finally:
        loops.stop()
        notifier.close()
