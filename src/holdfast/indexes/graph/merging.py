"""The slot `merging` of a base: where much is said of an entity or a relation, a model makes one description of it.

Chunks come and go one by one, and each notes of whom it says something. One pass reads what was noted, looks at each
subject once, however many chunks spoke of it, and pays only where what is said is more than can simply be joined and
differs from what was merged before. What it makes is a memo of all chunks whose words the model was shown, and goes
with the first of them. Nothing waits for it: until it is done, and whenever a source is no longer served, readers join
what served chunks say (`indexes.graph.graph_queries`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.catalog import lock_base
from holdfast.content.token_estimate import estimate_tokens
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
MERGING_PRIORITY = 9  # its priority: what changes documents goes first, so that one pass serves many changes
BEFORE_ALL_CHANGES = -1  # before all times
CHANGE_BATCH = 500  # changes looked at in one go


class MergeStage(NamedTuple):
    """One half of a pass: how it is called, and how the changes that are due are read and counted."""

    step: int
    name: str
    select_due: ClauseElement
    count_due: ClauseElement


STAGES = (
    MergeStage(1, "merging entities", sql.SELECT_DUE_ENTITIES, sql.COUNT_DUE_ENTITIES),
    MergeStage(2, "merging relations", sql.SELECT_DUE_RELATIONS, sql.COUNT_DUE_RELATIONS),
)


def request_merge(store: SqlStore, base: str) -> AdmissionResult:
    """Ask for a pass over a base, by its key; one that is under way is joined, and sees all that is written by now."""
    slots = (SlotSpec(MERGING),)
    asked = Request(
        base=base,
        owner=MERGING_OWNER,
        operation=Operation.FORCE,
        slots=slots,
        priority=MERGING_PRIORITY,
        cause="graph_changed",
    )

    def write(tx: Transaction) -> list[Request]:
        """Take the turn of the base: one that is deleted meanwhile gets no more work."""
        now = lock_base(tx, int(base))
        if now is None or now.deleting:
            raise UnknownBase(base)
        return [asked]

    return store.admit_with(write)[0]


def request_due_merges(store: SqlStore) -> int:
    """Ask for a pass over each base in which something changed and no document is at work; return how many were asked.

    A pass that failed or was cancelled is asked for again only when something has changed since.
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
    """What a model is asked to merge, and the chunks whose words it is shown."""

    name: str
    texts: tuple[str, ...]
    sources: Sequence[int]

    @property
    def tokens(self) -> int:
        """What asking costs, about, with the longest answer that there can be."""
        return estimate_tokens(merge_prompt.build_prompt(self.name, self.texts).text) + merge_prompt.MAX_TOKENS


class MergePlan(NamedTuple):
    """What was seen of some changed subjects: those to ask a model about, and those whose description is no more."""

    to_merge: dict[SubjectKey, tuple[str, MergeInput]]  # with the name under which the answer is remembered
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
    """An `Indexer`: builds the slot `merging` of a base."""

    def __init__(self, tools: Tools, catalogue: Catalog) -> None:
        self._database = tools.database
        self._merger = DescriptionMerger(tools.speaker, tools.memos)
        self._tools = tools
        self._catalogue = catalogue

    def build(self, task: Task) -> BuildResult:
        """Go over what changed until nothing is left; what comes while the result is published is gone over, too."""
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
        """Remove everything merged in the base, and what is noted of it."""
        for recipe in self._recipes(task):
            task.checkpoint(stage="removing")
            with task.guarded() as connection:
                delete_merged_of_recipe(self._database.wrap_connection(connection), recipe)

    def _publish(self, task: Task, recipes: Sequence[int]) -> bool:
        """Publish, unless something has changed: whoever noted it may have been told that this pass sees to it."""
        try:
            with task.publish(BuildResult()) as connection:
                _require_no_changes(self._database.wrap_connection(connection), recipes)
        except _NewChangesError:
            return False
        return True

    def _merge_changes(self, task: Task, base: Base, recipe: int, stage: MergeStage) -> None:
        """Go over what changed of entities, or of relations."""
        with self._database.reading() as tx:
            ((total,),) = tx.run(stage.count_due, recipe=recipe)
        done = 0
        while True:
            with self._database.reading() as tx:
                changes = tx.run(stage.select_due, recipe=recipe, limit=CHANGE_BATCH)
                keys = list(
                    dict.fromkeys((key, "") if not other else relation_key(key, other) for _, key, other in changes)
                )
                look = self._plan_merges(tx, base, recipe, keys)
            if not changes:
                return
            done += len(keys) - len(look.to_merge)
            total = max(total, done + len(look.to_merge))
            at: dict[str, Any] = {"stage": stage.name, "step": stage.step, "steps": len(STAGES), "total": total}
            task.checkpoint(**at, done=done)
            made: dict[str, str] = {}
            for some in self._merger.merge(base, task.ticket, dict(look.to_merge.values())):
                made |= some
                task.checkpoint(**at, done=done + len(made))
            self._write(task, recipe, look, made, [[id_] for id_, _, _ in changes])
            done += len(look.to_merge)

    def _plan_merges(self, tx: Transaction, base: Base, recipe: int, keys: Sequence[SubjectKey]) -> MergePlan:
        """Find out of which subjects a description must be made, and of which there shall be none."""
        speaks = read_subjects(tx, base.key, recipe, keys)
        before = read_merged(tx, recipe, keys)
        silent = self._tools.speaker_of(base).chat_model is None
        places = locate_served_chunks(tx, base.key, recipe, (chunk for one in before.values() for chunk in one.sources))
        look = MergePlan({}, [])
        for key in keys:
            need = self._to_merge_input(speaks[key]) if key in speaks else None
            known = before.get(key)
            if need is None or silent:
                look.to_delete.extend([key] if known else [])
            elif known is None or known.digest != need[0] or not known.sources <= places.keys():
                look.to_merge[key] = need
        return look

    def _to_merge_input(self, subject: Subject) -> tuple[str, MergeInput] | None:
        """Return what a model is asked of this subject; None if what is said can simply be joined."""
        said = subject.distinct_texts()
        if not merge_prompt.needs_model(said):
            return None
        told = {
            line[2:] for line in merge_prompt.build_prompt(subject.name, said).text.split("\n") if line.startswith("- ")
        }
        sources = subject.find_sources(text for text in said if text in told)
        return self._merger.cache_key(merge_prompt.digest(subject.name, said)), MergeInput(subject.name, said, sources)

    def _write(
        self, task: Task, recipe: int, look: MergePlan, made: Mapping[str, str], changes: Sequence[Sequence[int]]
    ) -> None:
        """Keep what was made, if all its sources are still served, and cross out what was noted."""
        with task.guarded() as connection:
            tx = self._database.wrap_connection(connection)
            places = locate_served_chunks(
                tx, task.ticket.key.base, recipe, (chunk for _, one in look.to_merge.values() for chunk in one.sources)
            )
            kept = {
                key: (made[name], name, one.sources)
                for key, (name, one) in look.to_merge.items()
                if name in made and places.keys() >= set(one.sources)
            }
            delete_merged(tx, recipe, [*look.to_delete, *look.to_merge])
            tx.run(sql.INSERT_MERGED, [[recipe, *key, text, name] for key, (text, name, _) in kept.items()])
            rows = [[recipe, *key, chunk] for key, (_, _, sources) in kept.items() for chunk in sources]
            tx.run(sql.INSERT_MERGED_SOURCES, rows)
            tx.run(sql.DELETE_CHANGES, changes)

    def _recipes(self, task: Task) -> list[int]:
        return [recipe.id for recipe in self._catalogue.recipes(task.ticket.key.base, GRAPH)]

    def _base(self, task: Task) -> Base:
        base = self._catalogue.base(int(task.ticket.key.base))
        if base is None:
            raise Permanent("unknown_base", "The base is not there any more; it has been deleted.")
        return base


class _NewChangesError(Exception):
    """Something changed while the result was about to be published."""


def _require_no_changes(tx: Transaction, recipes: Sequence[int]) -> None:
    if any(tx.run(sql.SELECT_ANY_DUE, recipe=recipe, since=BEFORE_ALL_CHANGES) for recipe in recipes):
        raise _NewChangesError


def _ask_model(provider: Provider, subject: MergeInput) -> tuple[str, Usage]:
    return call_structured(provider, merge_prompt.build_prompt(subject.name, subject.texts), merge_prompt.parse_answer)
