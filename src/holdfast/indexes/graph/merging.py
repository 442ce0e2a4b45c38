"""The slot `merging` of a base: a model merges many descriptions of an entity or a relation into one.

Each added or removed chunk records the subjects that it describes. A pass reads these changes and visits each subject
once, however many chunks changed. It pays only where the texts are too many to be joined and differ from those merged
before. The cached answer belongs to all chunks in the prompt and is removed with the first of them. Nothing waits for a
pass: until it is done, and whenever a source is not served any more, readers join the texts of served chunks
(`indexes.graph.graph_queries`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.catalog import lock_base
from holdfast.content import estimate_tokens
from holdfast.engine import RESTING_STATES, BuildResult, Operation, Request, SlotSpec, SlotState
from holdfast.errors import Permanent, UnknownBase, WorkError
from holdfast.indexes.graph import merge_prompt
from holdfast.indexes.graph import statements as sql
from holdfast.indexes.graph.evidence import (
    GRAPH,
    SubjectKey,
    locate_served_chunks,
    read_merged,
    read_subjects,
    relation_key,
)
from holdfast.indexes.graph.index import MERGING_OWNER, delete_merged, delete_merged_of_recipe
from holdfast.indexes.llm_calls import LlmCalls
from holdfast.llm import AnswerLookup, PaidAnswer, call_structured, require_budget

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy.sql import ClauseElement

    from holdfast.catalog import Base, Catalog
    from holdfast.db import Transaction
    from holdfast.engine import AdmissionResult, Ticket
    from holdfast.engine.store import SqlStore
    from holdfast.engine.task import Task
    from holdfast.indexes.base import Tools
    from holdfast.indexes.graph.evidence import Subject
    from holdfast.llm import MeteredProvider, PaidAnswerCache, Provider, Usage

MERGING = "merging"  # the kind of the slot
MERGING_PRIORITY = 9  # low: documents go first, so that one pass covers many changes
BEFORE_ALL_CHANGES = -1
CHANGE_BATCH = 500


class MergeStage(NamedTuple):
    """One half of a pass: its name, and the statements that read and count due changes."""

    step: int
    name: str
    select_due: ClauseElement
    count_due: ClauseElement


STAGES = (
    MergeStage(1, "merging entities", sql.SELECT_DUE_ENTITIES, sql.COUNT_DUE_ENTITIES),
    MergeStage(2, "merging relations", sql.SELECT_DUE_RELATIONS, sql.COUNT_DUE_RELATIONS),
)


def request_merge(store: SqlStore, base: str) -> AdmissionResult:
    """Request a pass over a base; a running pass is joined and includes everything written so far."""
    slots = (SlotSpec(MERGING),)
    request = Request(
        base=base,
        owner=MERGING_OWNER,
        operation=Operation.FORCE,
        slots=slots,
        priority=MERGING_PRIORITY,
        cause="graph_changed",
    )

    def write(tx: Transaction) -> list[Request]:
        """Lock the base: a base that was deleted meanwhile gets no more work."""
        now = lock_base(tx, int(base))
        if now is None or now.deleting:
            raise UnknownBase(base)
        return [request]

    return store.admit_with(write)[0]


def request_due_merges(store: SqlStore) -> int:
    """Request a pass for each base with changes and without documents at work; return how many were accepted.

    A failed or cancelled pass is requested again only after another change.
    """
    with store.database.reading() as tx:
        changed: dict[str, list[int]] = {}
        for base, recipe in tx.run(sql.SELECT_CHANGED_BASES):
            changed.setdefault(base, []).append(recipe)
        due = [base for base, recipes in changed.items() if _is_due(tx, base, recipes)]
    return sum(request_merge(store, base).accepted for base in due)


def _is_due(tx: Transaction, base: str, recipes: Sequence[int]) -> bool:
    if tx.run(sql.SELECT_QUEUED_SLOT, base=base) or tx.run(sql.SELECT_RUNNING_SLOT, base=base):
        return False
    since = BEFORE_ALL_CHANGES
    for state, asked_at in tx.run(sql.SELECT_MERGING_SLOT, base=base, owner=MERGING_OWNER, kind=MERGING):
        if state not in RESTING_STATES:
            return False
        since = BEFORE_ALL_CHANGES if state == SlotState.READY else asked_at
    return any(tx.run(sql.SELECT_ANY_DUE, recipe=recipe, since=since) for recipe in recipes)


class MergeInput(NamedTuple):
    """The input of one merge, and the chunks whose texts are in the prompt."""

    name: str
    texts: tuple[str, ...]
    sources: Sequence[int]

    @property
    def tokens(self) -> int:
        """The estimated cost with the longest possible answer."""
        return estimate_tokens(merge_prompt.build_prompt(self.name, self.texts).text) + merge_prompt.MAX_TOKENS


class MergePlan(NamedTuple):
    """The subjects to merge, and those whose merged description is obsolete."""

    to_merge: dict[SubjectKey, tuple[str, MergeInput]]  # with the cache key
    to_delete: list[SubjectKey]


class DescriptionMerger(LlmCalls[MergeInput]):
    """Calls a model about subjects; each cached answer belongs to all chunks that it was made from."""

    def __init__(self, provider: MeteredProvider, memos: PaidAnswerCache) -> None:
        super().__init__(provider, memos, kind=MERGING, recipe=merge_prompt.RECIPE, make=_ask_model)

    def merge(self, base: Base, ticket: Ticket, wanted: Mapping[str, MergeInput]) -> Iterator[dict[str, str]]:
        """Yield descriptions by cache key as they arrive.

        A subject gets none if the model refuses it or one of its source chunks is gone.
        """
        tenant = base.settings.tenant
        lookups = [AnswerLookup(ticket, key, subject.sources) for key, subject in wanted.items()]
        known = self._paid_cache.find_answers(tenant, lookups, self._charge)
        yield {key: value.decode() for key, value in known.items()}
        unknown = {key: subject for key, subject in wanted.items() if key not in known}
        require_budget(self._paid_cache, base, sum(subject.tokens for subject in unknown.values()))
        for key, reply in self._run_calls(self._provider.charge_to(base, MERGING, ticket=ticket), unknown):
            if isinstance(reply, WorkError):
                yield {}
            else:
                entry = PaidAnswer(ticket, key, reply.value, wanted[key].sources, reply.tokens_in, reply.tokens_out)
                stored = self._paid_cache.store_answers(tenant, [entry], joint=True)
                yield {key: value.decode() for key, value in stored.items()}


class MergingIndexer:
    """An `Indexer` for the slot `merging` of a base."""

    def __init__(self, tools: Tools, catalogue: Catalog) -> None:
        self._database = tools.database
        self._merger = DescriptionMerger(tools.speaker, tools.memos)
        self._tools = tools
        self._catalogue = catalogue

    def build(self, task: Task) -> BuildResult:
        """Process changes until none is left, including those that arrive while the result is published."""
        recipes = self._recipes(task)
        base = self._base(task)
        ended = False
        while not ended:
            for recipe in recipes:
                for stage in STAGES:
                    self._merge_changes(task, base, recipe, stage)
            ended = self._publish(task, recipes)
        return BuildResult()

    def remove(self, task: Task) -> None:
        """Remove all merged descriptions and recorded changes of the base."""
        for recipe in self._recipes(task):
            task.checkpoint(stage="removing")
            with task.guarded() as connection:
                delete_merged_of_recipe(self._database.wrap_connection(connection), recipe)

    def _publish(self, task: Task, recipes: Sequence[int]) -> bool:
        """Publish and return True; with new changes, whose requests may have joined this pass, return False."""
        try:
            with task.publish(BuildResult()) as connection:
                _require_no_changes(self._database.wrap_connection(connection), recipes)
        except _NewChangesError:
            return False
        return True

    def _merge_changes(self, task: Task, base: Base, recipe: int, stage: MergeStage) -> None:
        """Process the changes of entities, or of relations."""
        with self._database.reading() as tx:
            ((total,),) = tx.run(stage.count_due, recipe=recipe)
        done = 0
        while True:
            with self._database.reading() as tx:
                changes = tx.run(stage.select_due, recipe=recipe, limit=CHANGE_BATCH)
                keys = list(
                    dict.fromkeys((key, "") if not other else relation_key(key, other) for _, key, other in changes)
                )
                plan = self._plan_merges(tx, base, recipe, keys)
            if not changes:
                return
            done += len(keys) - len(plan.to_merge)
            total = max(total, done + len(plan.to_merge))
            at: dict[str, Any] = {"stage": stage.name, "step": stage.step, "steps": len(STAGES), "total": total}
            task.checkpoint(**at, done=done)
            made: dict[str, str] = {}
            for descriptions in self._merger.merge(base, task.ticket, dict(plan.to_merge.values())):
                made |= descriptions
                task.checkpoint(**at, done=done + len(made))
            self._write(task, recipe, plan, made, [[id_] for id_, _, _ in changes])
            done += len(plan.to_merge)

    def _plan_merges(self, tx: Transaction, base: Base, recipe: int, keys: Sequence[SubjectKey]) -> MergePlan:
        """Return which subjects to merge, and which merged descriptions to delete."""
        subjects = read_subjects(tx, base.key, recipe, keys)
        before = read_merged(tx, recipe, keys)
        no_model = self._tools.speaker_of(base).chat_model is None
        locations = locate_served_chunks(
            tx, base.key, recipe, (chunk for merged in before.values() for chunk in merged.sources)
        )
        plan = MergePlan({}, [])
        for key in keys:
            need = self._to_merge_input(subjects[key]) if key in subjects else None
            known = before.get(key)
            if need is None or no_model:
                plan.to_delete.extend([key] if known else [])
            elif known is None or known.digest != need[0] or not known.sources <= locations.keys():
                plan.to_merge[key] = need
        return plan

    def _to_merge_input(self, subject: Subject) -> tuple[str, MergeInput] | None:
        """Return the input for a subject with its cache key; None if its texts can be joined without a model."""
        texts = subject.distinct_texts()
        if not merge_prompt.needs_model(texts):
            return None
        shown = {
            line[2:]
            for line in merge_prompt.build_prompt(subject.name, texts).text.split("\n")
            if line.startswith("- ")
        }
        sources = subject.find_sources(text for text in texts if text in shown)
        return self._merger.cache_key(merge_prompt.digest(subject.name, texts)), MergeInput(
            subject.name, texts, sources
        )

    def _write(
        self, task: Task, recipe: int, plan: MergePlan, made: Mapping[str, str], changes: Sequence[Sequence[int]]
    ) -> None:
        """Write the descriptions whose sources are all served, and delete the processed changes."""
        with task.guarded() as connection:
            tx = self._database.wrap_connection(connection)
            locations = locate_served_chunks(
                tx,
                task.ticket.key.base,
                recipe,
                (chunk for _, subject in plan.to_merge.values() for chunk in subject.sources),
            )
            current = {
                key: (made[name], name, subject.sources)
                for key, (name, subject) in plan.to_merge.items()
                if name in made and locations.keys() >= set(subject.sources)
            }
            delete_merged(tx, recipe, [*plan.to_delete, *plan.to_merge])
            tx.run(sql.INSERT_MERGED, [[recipe, *key, text, name] for key, (text, name, _) in current.items()])
            rows = [[recipe, *key, chunk] for key, (_, _, sources) in current.items() for chunk in sources]
            tx.run(sql.INSERT_MERGED_SOURCES, rows)
            tx.run(sql.DELETE_CHANGES, changes)

    def _recipes(self, task: Task) -> list[int]:
        return [recipe.id for recipe in self._catalogue.recipes(task.ticket.key.base, GRAPH)]

    def _base(self, task: Task) -> Base:
        base = self._catalogue.base(int(task.ticket.key.base))
        if base is None:
            raise Permanent("unknown_base", params={"base": task.ticket.key.base})
        return base


class _NewChangesError(Exception):
    """A change arrived before the result was published."""


def _require_no_changes(tx: Transaction, recipes: Sequence[int]) -> None:
    if any(tx.run(sql.SELECT_ANY_DUE, recipe=recipe, since=BEFORE_ALL_CHANGES) for recipe in recipes):
        raise _NewChangesError


def _ask_model(provider: Provider, subject: MergeInput) -> tuple[str, Usage]:
    return call_structured(provider, merge_prompt.build_prompt(subject.name, subject.texts), merge_prompt.parse_answer)
