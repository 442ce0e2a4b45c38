"""Admission: one short transaction that answers requests and writes what they start."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.clock import Moment
from holdfast.engine.admission import (
    BUILDS,
    CLEAN_UP_AGAIN,
    QUOTA_EXHAUSTED,
    Answer,
    Request,
    Row,
    Verdict,
    admit,
    may_be_overtaken,
    situation_of,
)
from holdfast.engine.dependencies import SlotSpec, askable, check_specs, droppable, raised
from holdfast.engine.effects import Change, Event
from holdfast.engine.queue import NO_PAUSES
from holdfast.engine.slot import JobId, OwnerId
from holdfast.engine.states import ACTIVE, Operation, Outcome, SlotState, Status, Verb
from holdfast.engine.store import statements as sql
from holdfast.engine.store.base import LARGEST_BATCH
from holdfast.engine.store.group_commit import Gathering
from holdfast.engine.store.rows import owner_of, pauses_of, quota_of, slot_of
from holdfast.engine.store.transitions import Desk, Snapshot, plain, record, record_refused
from holdfast.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from holdfast.db import Database, Transaction
    from holdfast.engine.queue import Pauses
    from holdfast.engine.rules import Rules
    from holdfast.engine.slot import Slot
    from holdfast.engine.store.base import RequestWriter
    from holdfast.engine.store.rows import OwnerRow

    Costs = Callable[[Transaction, Sequence[tuple[str, str]]], Mapping[tuple[str, str], float]]

LOWEST_PRIORITY = 9


@dataclass(slots=True, kw_only=True)
class Case:
    """A request on its way to an answer."""

    request: Request
    owner: OwnerId | None
    generation: int  # the newest number handed out
    slots: dict[str, Slot]
    row: Row
    job: JobId | None  # the active job, then the new one
    again_at: Moment | None = None  # where the quota refused it

    @property
    def specs(self) -> tuple[SlotSpec, ...]:
        """What the owner should have: what it has, and what was asked for."""
        if not self.slots:
            return self.request.slots
        wanted = {kind: SlotSpec(kind, slot.needs) for kind, slot in self.live.items()}
        wanted |= {spec.kind: spec for spec in askable(self.request.slots, self.slots.values())}
        return tuple(wanted.values())

    @property
    def live(self) -> dict[str, Slot]:
        """The slots that are not being removed."""
        return {kind: slot for kind, slot in self.slots.items() if slot.state is not SlotState.DELETING}

    @property
    def dropping(self) -> int:
        """How many slots are being removed; whatever job is active counts them as its own."""
        return len(self.slots) - len(self.live)

    @property
    def accepted(self) -> bool:
        """Something is to be written."""
        return self.row.verdict is Verdict.ACCEPTED


class Look(NamedTuple):
    """What requests are judged by, read under the locks of their owners."""

    tx: Transaction
    snapshot: Snapshot
    now: Moment = Moment(0)
    pauses: Pauses = NO_PAUSES


class Admitting(Desk):
    """Answers requests; N identical ones at once make one generation and name one job."""

    def __init__(
        self,
        database: Database,
        rules: Rules,
        ids: Callable[[], str],
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(database, rules, wake)
        self._ids = ids
        self.costs: Costs = lambda _tx, _owners: {}  # estimates what is left to pay for owners, by base and owner
        self._gathering = Gathering(self._answer_gathered)

    def admit(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer each request, in order; what is accepted is durable when this returns."""
        for request in requests:
            check(request)
        if len(requests) == 1:
            return [self._gathering.ask(requests[0])]
        answers: dict[int, Answer] = {}
        for portion in portions(requests):
            answers |= self._answer(lambda _, portion=portion: portion)  # type: ignore[misc]
        return [answers[index] for index in range(len(requests))]

    def admit_with(self, write: RequestWriter) -> list[Answer]:
        """Answer the requests that `write` returns, in the transaction in which it wrote: both are kept or neither.

        They must be of different owners, at most `LARGEST_BATCH`. Another transaction in the way may have `write`
        called again.
        """

        def take(tx: Transaction) -> Mapping[int, Request]:
            requests = write(tx)
            for request in requests:
                check(request)
            return dict(enumerate(requests))

        return list(self._answer(take).values())

    def _answer_gathered(self, take: Callable[[], list[Request]]) -> list[Answer]:
        return list(self._answer(lambda _: dict(enumerate(take()))).values())

    def _answer(self, take: Callable[[Transaction], Mapping[int, Request]]) -> dict[int, Answer]:
        """Answer, in one transaction, what `take` returns once it is our turn."""
        cases, statuses, changes = self.database.write(lambda tx: self._admit(take(tx), tx), durable=True)
        self._report(changes)
        return {
            index: Answer(
                verdict=case.row.verdict,
                reason=case.row.reason,
                status=statuses.get(case.owner or OwnerId(0), Status.NOT_INDEXED),
                job=case.job,
                generation=case.generation,
                again_at=case.again_at,
            )
            for index, case in cases.items()
        }

    def _admit(
        self, portion: Mapping[int, Request], tx: Transaction, *, counted: bool = True
    ) -> tuple[dict[int, Case], Mapping[OwnerId, Status], list[Change]]:
        """Answer within a transaction; what is not `counted` is no work, and needs no quota."""
        names = [[request.base, request.owner] for request in portion.values()]
        rows = [owner_of(row) for row in tx.run(sql.FIND_OWNERS, names)]
        found = {(row.base, row.owner): row for row in rows}
        snapshot = Snapshot(tx, [row.id for row in rows])
        look = Look(tx, snapshot)
        if found:  # nothing about a new owner depends on time, or on what is paused
            look = Look(tx, snapshot, tx.run(sql.TIME)[0][0], pauses_of(tx.run(sql.READ_PAUSES)))
        cases = {
            index: self._case(look, request, found.get((request.base, request.owner)))
            for index, request in portion.items()
        }
        if counted:
            _count(tx, [case for case in cases.values() if case.accepted and case.request.operation in BUILDS])
        changes = self._accept(tx, [case for case in cases.values() if case.accepted], snapshot)
        self._audit(tx, [case for case in cases.values() if not case.accepted])
        return cases, self._follow(tx, snapshot, changes).statuses, changes

    def _audit(self, tx: Transaction, cases: Sequence[Case]) -> None:
        """Record what made no new work: who asked, what stood in its way, what it would have cost."""
        unpaid = [
            (case.request.base, case.request.owner)
            for case in cases
            if not case.request.cost and case.request.operation in BUILDS and _unfinished(case)
        ]
        costs = self.costs(tx, unpaid) if unpaid else {}
        rows = [
            [
                case.request.base, case.request.owner, case.request.operation, case.row.verdict, case.row.reason,
                case.job, case.request.requester,
                costs.get((case.request.base, case.request.owner), case.request.cost),
            ]
            for case in cases
        ]  # fmt: skip
        record_refused(tx, rows)

    def _case(self, look: Look, request: Request, row: OwnerRow | None) -> Case:
        owner = row.id if row is not None else None
        slots = {slot.kind: slot for slot in look.snapshot.of(owner)}
        situation = situation_of(
            request,
            list(slots.values()),
            fingerprint=row.fingerprint if row is not None else None,
            now=look.now,
            rules=self.rules,
            overtaken=self._overtaken(look, slots.values(), look.pauses.over(request.base)),
            paused=look.pauses.on(request.base) is not None,
        )
        decided = admit(request.operation, situation)
        return Case(
            request=replace(request, operation=Operation.DELETE) if decided is CLEAN_UP_AGAIN else request,
            owner=owner,
            generation=row.generation if row is not None else 0,
            slots=slots,
            row=decided,
            job=next((slot.job for slot in slots.values() if slot.state in ACTIVE), None),
        )

    def _overtaken(self, look: Look, slots: Iterable[Slot], resumed_at: Moment) -> bool:
        rows = [
            [slot.id, slot.job, slot.kind, slot.priority, slot.queued_at, resumed_at]
            for slot in slots
            if may_be_overtaken(slot, look.now, self.rules, resumed_at=resumed_at)
        ]
        return bool(look.tx.run(sql.OVERTAKEN, rows))

    def _hand_out_numbers(self, tx: Transaction, cases: Sequence[Case], snapshot: Snapshot) -> None:
        """Give each new request the next number of its owner; an owner that is new is made."""
        known = [case for case in cases if case.owner is not None]
        for case in known:
            case.generation += 1
        tx.run(sql.RAISE_OWNERS, [[case.owner, case.generation, case.request.fingerprint] for case in known])
        new = {(case.request.base, case.request.owner): case for case in cases if case.owner is None}
        rows = [[*name, case.request.fingerprint, str(Status.QUEUED)] for name, case in new.items()]
        for owner, base, name in tx.run(sql.CREATE_OWNERS, rows):
            case = new[base, name]
            case.owner, case.generation = owner, 1
            snapshot.statuses[owner] = Status.QUEUED
            snapshot.made.add(owner)

    def _end_jobs(self, tx: Transaction, cases: Sequence[Case]) -> None:
        """End the jobs that these requests supersede, cancel or delete."""
        rows = [[case.owner, _ends(case)] for case in cases if case.job is not None]
        events = [
            Event(type=f"job.{outcome}", base=base, owner=owner, job=job, generation=generation)
            for job, base, owner, generation, outcome in tx.run(sql.END_JOBS, rows)
        ]
        record(tx, events)

    def _accept(self, tx: Transaction, cases: Sequence[Case], snapshot: Snapshot) -> list[Change]:
        """Write what was accepted: numbers, ended jobs, new jobs, moved slots."""
        cancels = [case for case in cases if case.request.operation is Operation.CANCEL]
        deletes = [case for case in cases if case.request.operation is Operation.DELETE]
        drops = [case for case in cases if case.request.operation is Operation.DROP]
        builds = [case for case in cases if case.request.operation in BUILDS]
        rests = [_rest_of(case) for case in cancels if case.dropping]
        self._hand_out_numbers(tx, [*deletes, *drops, *builds, *rests], snapshot)
        self._end_jobs(tx, cases)
        stopped = tx.run(sql.CANCEL, [[case.owner] for case in cancels])
        plans = [(case, raised(case.row.scope, case.specs, case.live, case.request.kinds)) for case in builds]
        doomed = [slot for case in deletes for slot in case.slots.values()]
        going = {case.owner: droppable(case.request.kinds, case.slots.values()) for case in drops}
        doomed += [case.slots[kind] for case in drops for kind in going[case.owner]]
        self._open_jobs(tx, [(case, len(kinds) + case.dropping) for case, kinds in plans])
        self._open_jobs(tx, [(case, len(case.slots)) for case in deletes])
        self._open_jobs(tx, [(case, len(going[case.owner]) + case.dropping) for case in drops])
        self._open_jobs(tx, [(case, case.dropping) for case in rests])
        carried = [case for case in (*builds, *drops, *rests) if case.dropping]
        tx.run(sql.CARRY, [[case.owner, case.job] for case in carried])
        by_owner = {case.owner: case for case in (*deletes, *drops)}
        rows = [[slot.id, *_ending(by_owner[slot.owner_id])] for slot in doomed]
        record(tx, [_accepted(case) for case in rests])
        started = [
            *snapshot.moved(tx.run(sql.MARK_DELETING, rows), Verb.DELETE),
            *self._raise(tx, plans, snapshot),
        ]
        return [*snapshot.moved(stopped, Verb.CANCEL), *_begun(started, [*deletes, *drops, *builds])]

    def _open_jobs(self, tx: Transaction, sizes: Sequence[tuple[Case, int]]) -> None:
        rows = []
        for case, size in sizes:
            case.job = JobId(self._ids())
            request = case.request
            rows.append([
                case.job, case.owner, request.base, request.owner, case.generation, str(request.operation),
                request.cause, request.requester, request.priority, size, request.payload, int(request.tell),
            ])  # fmt: skip
        tx.run(sql.OPEN_JOBS, rows)

    def _raise(
        self, tx: Transaction, plans: Sequence[tuple[Case, Mapping[str, SlotState]]], snapshot: Snapshot
    ) -> list[Change]:
        """Write a new generation of slots, and slots that are new."""
        new, old = [], []
        names = {}
        for case, kinds in plans:
            names[case.owner] = case.request
            needs = {spec.kind: spec.needs for spec in case.specs}
            for kind, state in kinds.items():
                row = [needs[kind], case.job, case.generation, str(state), case.request.priority]
                if kind in case.slots:
                    old.append([case.slots[kind].id, *row])
                else:
                    new.append([case.owner, kind, *row])
        changes = snapshot.moved(tx.run(sql.RAISE_SLOTS, old), Verb.ADMIT)
        for made in tx.run(sql.CREATE_SLOTS, new):
            request = names[made[1]]
            slot = slot_of(made, request.base, request.owner)
            changes.append(Change(verb=Verb.ADMIT, before=None, after=slot))
        return changes


def check(request: Request) -> None:
    """Refuse what cannot mean anything, or what one of the databases could not keep."""
    if not request.base or not request.owner:
        raise BadRequest("A request names a base and an owner; neither may be empty.")
    if not all(spec.kind for spec in request.slots):
        raise BadRequest("A slot has a kind; it may not be empty.")
    kinds = [spec.kind for spec in request.slots]
    if bool(request.kinds) is not (request.operation in (Operation.RENEW, Operation.DROP)):
        raise BadRequest("To renew or to drop names kinds of slots; nothing else does.")
    if request.operation is Operation.RENEW and not set(request.kinds) <= set(kinds):
        raise BadRequest(f"To renew {list(request.kinds)} they must be among the slots that are asked for.")
    words = (request.cause, request.requester, request.fingerprint or "")
    texts = (request.base, request.owner, *kinds, *request.kinds, *words)
    whole = "".join(texts)
    if plain(whole) != whole:
        bad = next(text for text in texts if plain(text) != text)
        raise BadRequest(f"{bad!r} is not text that can be stored: it holds a zero byte or half a character.")
    if request.payload is not None and plain(request.payload) != request.payload:
        raise BadRequest("The payload is not text that can be stored: it holds a zero byte or half a character.")
    check_priority(request.priority)
    if not math.isfinite(request.cost):
        raise BadRequest(f"The cost {request.cost} is not a number that can be added up.")
    check_specs(request.slots)


def check_priority(priority: int) -> None:
    """Refuse a priority that no slot can have."""
    if not 0 <= priority <= LOWEST_PRIORITY:
        raise BadRequest(f"The priority {priority} is not between 0 (first) and {LOWEST_PRIORITY} (last).")


def portions(requests: Sequence[Request]) -> Iterator[dict[int, Request]]:
    """Split into transactions: bounded, and each owner at most once in each."""
    portion: dict[int, Request] = {}
    names: set[tuple[str, str]] = set()
    for index, request in enumerate(requests):
        name = (request.base, request.owner)
        if name in names or len(portion) == LARGEST_BATCH:
            yield portion
            portion, names = {}, set()
        portion[index] = request
        names.add(name)
    if portion:
        yield portion


def _ending(case: Case) -> list[Any]:
    """Show to a statement that ends slots which job does it, in which generation, and how urgent it is."""
    return [case.job, case.generation, case.request.priority]


def _rest_of(case: Case) -> Case:
    """Return a request for what a cancel does not end: slots that are being removed get a job of their own."""
    return replace(case, request=replace(case.request, operation=Operation.DROP, payload=None, tell=False, job=None))


def _begun(changes: Iterable[Change], cases: Iterable[Case]) -> Iterator[Change]:
    """Note with the first move of each job who asked for what: so the log tells of it without a line of its own."""
    untold: dict[str | None, Case] = {case.job: case for case in cases}
    for change in changes:
        case = untold.pop(change.slot.job, None)
        yield change if case is None else change._replace(note=_asked(case))


def _asked(case: Case) -> dict[str, object]:
    """Tell who asked for what, and why."""
    request = case.request
    return {
        "operation": str(request.operation),
        "cause": request.cause,
        "requester": request.requester,
        "priority": request.priority,
    }


def _accepted(case: Case) -> Event:
    """Tell of a job that begins without any move."""
    request = case.request
    data = json.dumps(_asked(case))
    return Event("job.accepted", request.base, request.owner, job=case.job, generation=case.generation, data=data)


def _ends(case: Case) -> Outcome:
    """Tell how the job ends that was active; a clean-up that is asked for again goes on under another one."""
    if case.row is CLEAN_UP_AGAIN:
        return Outcome.SUPERSEDED
    if case.request.operation is Operation.DELETE:
        return Outcome.DELETED
    return Outcome.CANCELLED if case.request.operation is Operation.CANCEL else Outcome.SUPERSEDED


def _count(tx: Transaction, builds: Sequence[Case]) -> None:
    """Count builds against the quotas of their bases, and refuse those beyond.

    The rows of the quotas stay locked until we commit, so whoever asks at the same moment counts on from here.
    """
    bases = sorted({case.request.base for case in builds})
    quotas = {quota.base: quota for quota in map(quota_of, tx.run(sql.LOCK_QUOTAS, [[base] for base in bases]))}
    if not quotas:
        return
    now = tx.run(sql.TIME)[0][0]
    for case in builds:
        quota = quotas.get(case.request.base)
        if quota is None:
            continue
        if quota.left(now):
            today = quota.at(now)
            quotas[quota.base] = replace(today, used=today.used + 1)
        else:
            case.row, case.again_at = QUOTA_EXHAUSTED, quota.again_at(now)
    tx.run(sql.SPEND, [[quota.base, quota.day, quota.used] for quota in quotas.values()])


def _unfinished(case: Case) -> bool:
    """Tell whether something of the owner is not built: what is built costs nothing again."""
    return any(slot.state is not SlotState.READY for slot in case.live.values())
