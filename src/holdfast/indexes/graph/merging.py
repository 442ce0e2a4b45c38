"""The slot `merging` of a base: where much is said of an entity or a relation, a model makes one description of it.

Chunks come and go one by one, and each notes of whom it says something. One pass reads what was noted, looks at each
subject once, however many chunks spoke of it, and pays only where what is said is more than can simply be joined and
differs from what was merged before. What it makes is a memo of all chunks whose words the model was shown, and goes
with the first of them. Nothing waits for it: until it is done, and whenever a source is no longer served, readers join
what served chunks say (`indexes.graph.graph_queries`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.catalog import Piece, lock_base
from holdfast.content.token_estimate import estimate
from holdfast.engine import RESTING, Built, Operation, Request, SlotSpec, SlotState
from holdfast.errors import Permanent, UnknownBase, WorkError
from holdfast.indexes.graph import merge_prompt
from holdfast.indexes.graph import statements as sql
from holdfast.indexes.graph.evidence import GRAPH, Key, merged, pair, shown, subjects
from holdfast.indexes.graph.index import MERGES, forget_merged
from holdfast.indexes.llm_calls import Speaker
from holdfast.llm import Entry, Use, allow, converse, memo_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy.sql import ClauseElement

    from holdfast.catalog import Base, Catalogue
    from holdfast.db import Transaction
    from holdfast.engine import Answer, Ticket
    from holdfast.engine.store import SqlStore
    from holdfast.engine.task import Task
    from holdfast.indexes.base import Tools
    from holdfast.indexes.graph.evidence import Subject
    from holdfast.llm import Memos, Metered, Paid, Provider

MERGING = "merging"  # the kind of the slot
OWNER = MERGES
LAST = 9  # its priority: what changes documents goes first, so that one pass serves many changes
ALWAYS = -1  # before all times
TOGETHER = 500  # changes looked at in one go


class Stage(NamedTuple):
    """One half of a pass: how it is called, and how the changes that are due are read and counted."""

    step: int
    name: str
    due: ClauseElement
    counting: ClauseElement


STAGES = (
    Stage(1, "merging entities", sql.DUE_ENTITIES, sql.COUNT_ENTITIES),
    Stage(2, "merging relations", sql.DUE_RELATIONS, sql.COUNT_RELATIONS),
)


def request(store: SqlStore, base: str) -> Answer:
    """Ask for a pass over a base, by its key; one that is under way is joined, and sees all that is written by now."""
    slots = (SlotSpec(MERGING),)
    asked = Request(
        base=base, owner=OWNER, operation=Operation.FORCE, slots=slots, priority=LAST, cause="graph_changed"
    )

    def write(tx: Transaction) -> list[Request]:
        """Take the turn of the base: one that is deleted meanwhile gets no more work."""
        now = lock_base(tx, int(base))
        if now is None or now.deleting:
            raise UnknownBase(base)
        return [asked]

    return store.admit_with(write)[0]


def request_due(store: SqlStore) -> int:
    """Ask for a pass over each base in which something changed and no document is at work; return how many were asked.

    A pass that failed or was cancelled is asked for again only when something has changed since.
    """
    with store.database.reading() as tx:
        changed: dict[str, list[int]] = {}
        for base, recipe in tx.run(sql.CHANGED_BASES):
            changed.setdefault(base, []).append(recipe)
        due = [base for base, recipes in changed.items() if _due(tx, base, recipes)]
    return sum(request(store, base).accepted for base in due)


def _due(tx: Transaction, base: str, recipes: Sequence[int]) -> bool:
    if tx.run(sql.QUEUED, base=base) or tx.run(sql.TAKEN, base=base):
        return False
    since = ALWAYS
    for state, asked_at in tx.run(sql.MERGING_SLOT, base=base, owner=OWNER, kind=MERGING):
        if state not in RESTING:
            return False
        since = ALWAYS if state == SlotState.READY else asked_at
    return any(tx.run(sql.ANY_DUE, recipe=recipe, since=since) for recipe in recipes)


class Wanted(NamedTuple):
    """What a model is asked to merge, and the chunks whose words it is shown."""

    name: str
    said: tuple[str, ...]
    sources: Sequence[int]

    @property
    def tokens(self) -> int:
        """What asking costs, about, with the longest answer that there can be."""
        return estimate(merge_prompt.ask(self.name, self.said).text) + merge_prompt.MAX_TOKENS


class Look(NamedTuple):
    """What was seen of some changed subjects: those to ask a model about, and those whose description is no more."""

    wanted: dict[Key, tuple[str, Wanted]]  # with the name under which the answer is remembered
    over: list[Key]


class Merger(Speaker):
    """Asks a model about subjects; each answer is remembered for all chunks that it was made from."""

    def __init__(self, provider: Metered, memos: Memos) -> None:
        super().__init__(provider, memos, kind=MERGING, recipe=merge_prompt.RECIPE, make=_made)

    def name(self, name: str, said: Sequence[str]) -> str:
        """Return the name under which the answer is remembered."""
        return memo_key(self._kind, f"{self.model}/{self._recipe}", merge_prompt.digest(name, said))

    def merge(self, base: Base, ticket: Ticket, wanted: Mapping[str, Wanted]) -> Iterator[dict[str, str]]:
        """Give out descriptions as they arrive; none comes of what the model refuses, or whose sources are gone."""
        tenant = base.settings.tenant
        uses = [Use(ticket, name, one.sources) for name, one in wanted.items()]
        known = self._memos.recall(tenant, uses, self._saved)
        yield {name: value.decode() for name, value in known.items()}
        pieces = {
            name: Piece(0, (one.name,), json.dumps(one.said), opening=False)
            for name, one in wanted.items()
            if name not in known
        }
        allow(self._memos, base, sum(wanted[name].tokens for name in pieces))
        for name, said in self._asked(self._provider.charged(base, MERGING, ticket=ticket), pieces):
            if isinstance(said.answer, WorkError):
                yield {}
            else:
                usage = said.usage
                entry = Entry(
                    ticket, name, said.answer.encode(), wanted[name].sources, usage.tokens_in, usage.tokens_out
                )
                kept = self._memos.keep(tenant, [entry], joint=True)
                yield {name: value.decode() for name, value in kept.items()}


class MergingIndexer:
    """An `Indexer`: builds the slot `merging` of a base."""

    def __init__(self, tools: Tools, catalogue: Catalogue) -> None:
        self._database = tools.database
        self._merger = Merger(tools.speaker, tools.memos)
        self._tools = tools
        self._catalogue = catalogue

    def build(self, task: Task) -> Built:
        """Go over what changed until nothing is left; what comes while the result is published is gone over, too."""
        recipes = self._recipes(task)
        base = self._base(task)
        ended = False
        while not ended:
            for recipe in recipes:
                for stage in STAGES:
                    self._pass(task, base, recipe, stage)
            ended = self._publish(task, recipes)
        return Built()

    def remove(self, task: Task) -> None:
        """Remove everything merged in the base, and what is noted of it."""
        for recipe in self._recipes(task):
            task.checkpoint(stage="removing")
            with task.guarded() as connection:
                tx = self._database.within(connection)
                for statement in (sql.REMOVE_SOURCES, sql.REMOVE_MERGED, sql.REMOVE_CHANGES):
                    tx.run(statement, recipe=recipe)

    def _publish(self, task: Task, recipes: Sequence[int]) -> bool:
        """Publish, unless something has changed: whoever noted it may have been told that this pass sees to it."""
        try:
            with task.publish(Built()) as connection:
                self._check(self._database.within(connection), recipes)
        except _MoreCameError:
            return False
        return True

    @staticmethod
    def _check(tx: Transaction, recipes: Sequence[int]) -> None:
        if any(tx.run(sql.ANY_DUE, recipe=recipe, since=ALWAYS) for recipe in recipes):
            raise _MoreCameError

    def _pass(self, task: Task, base: Base, recipe: int, stage: Stage) -> None:
        """Go over what changed of entities, or of relations."""
        with self._database.reading() as tx:
            ((total,),) = tx.run(stage.counting, recipe=recipe)
        done = 0
        while True:
            with self._database.reading() as tx:
                changes = tx.run(stage.due, recipe=recipe, limit=TOGETHER)
                keys = list(dict.fromkeys((key, "") if not other else pair(key, other) for _, key, other in changes))
                look = self._look(tx, base, recipe, keys)
            if not changes:
                return
            done += len(keys) - len(look.wanted)
            total = max(total, done + len(look.wanted))
            at: dict[str, Any] = {"stage": stage.name, "step": stage.step, "steps": len(STAGES), "total": total}
            task.checkpoint(**at, done=done)
            made: dict[str, str] = {}
            for some in self._merger.merge(base, task.ticket, dict(look.wanted.values())):
                made |= some
                task.checkpoint(**at, done=done + len(made))
            self._write(task, recipe, look, made, [[id_] for id_, _, _ in changes])
            done += len(look.wanted)

    def _look(self, tx: Transaction, base: Base, recipe: int, keys: Sequence[Key]) -> Look:
        """Find out of which subjects a description must be made, and of which there shall be none."""
        speaks = subjects(tx, base.key, recipe, keys)
        before = merged(tx, recipe, keys)
        silent = self._tools.speaker_of(base).chat_model is None
        places = shown(tx, base.key, recipe, (chunk for one in before.values() for chunk in one.sources))
        look = Look({}, [])
        for key in keys:
            need = self._needs(speaks[key]) if key in speaks else None
            known = before.get(key)
            if need is None or silent:
                look.over.extend([key] if known else [])
            elif known is None or known.digest != need[0] or not known.sources <= places.keys():
                look.wanted[key] = need
        return look

    def _needs(self, subject: Subject) -> tuple[str, Wanted] | None:
        """Return what a model is asked of this subject; None if what is said can simply be joined."""
        said = subject.texts()
        if not merge_prompt.needs_model(said):
            return None
        told = {line[2:] for line in merge_prompt.ask(subject.name, said).text.split("\n") if line.startswith("- ")}
        sources = subject.sources(text for text in said if text in told)
        return self._merger.name(subject.name, said), Wanted(subject.name, said, sources)

    def _write(
        self, task: Task, recipe: int, look: Look, made: Mapping[str, str], changes: Sequence[Sequence[int]]
    ) -> None:
        """Keep what was made, if all its sources are still served, and cross out what was noted."""
        with task.guarded() as connection:
            tx = self._database.within(connection)
            places = shown(
                tx, task.ticket.key.base, recipe, (chunk for _, one in look.wanted.values() for chunk in one.sources)
            )
            kept = {
                key: (made[name], name, one.sources)
                for key, (name, one) in look.wanted.items()
                if name in made and places.keys() >= set(one.sources)
            }
            forget_merged(tx, recipe, [*look.over, *look.wanted])
            tx.run(sql.KEEP_MERGED, [[recipe, *key, text, name] for key, (text, name, _) in kept.items()])
            rows = [[recipe, *key, chunk] for key, (_, _, sources) in kept.items() for chunk in sources]
            tx.run(sql.KEEP_SOURCES, rows)
            tx.run(sql.FORGET_CHANGES, changes)

    def _recipes(self, task: Task) -> list[int]:
        return [recipe.id for recipe in self._catalogue.recipes(task.ticket.key.base, GRAPH)]

    def _base(self, task: Task) -> Base:
        base = self._catalogue.base(int(task.ticket.key.base))
        if base is None:
            raise Permanent("unknown_base", "The base is not there any more; it has been deleted.")
        return base


class _MoreCameError(Exception):
    """Something changed while the result was about to be published."""


def _made(provider: Provider, piece: Piece, paid: Paid) -> str:
    """Ask the model about one subject: its name is the heading, and what is said of it the text."""
    prompt = merge_prompt.ask(piece.headings[0], json.loads(piece.text))
    return converse(provider, prompt, merge_prompt.read, paid=paid)[0]
