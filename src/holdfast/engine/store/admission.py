"""Admission of requests: one short transaction decides on requests and writes the work they start."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.clock import Moment
from holdfast.engine.admission import (
    BUILD_OPERATIONS,
    QUOTA_EXHAUSTED,
    RETRY_CLEANUP,
    AdmissionResult,
    AdmissionRule,
    Request,
    Verdict,
    classify_situation,
    find_rule,
    may_be_overtaken,
)
from holdfast.engine.dependencies import SlotSpec, check_specs, plan_generation, select_droppable, select_requestable
from holdfast.engine.effects import Event, SlotChange
from holdfast.engine.queue import NO_PAUSES
from holdfast.engine.slot import JobId, OwnerId
from holdfast.engine.states import ACTIVE_STATES, Operation, Outcome, SlotState, Status, Verb
from holdfast.engine.store import statements as sql
from holdfast.engine.store.base import LARGEST_BATCH
from holdfast.engine.store.group_commit import GroupCommit
from holdfast.engine.store.job_details import OPEN_DETAILS
from holdfast.engine.store.rows import OwnerRow, pauses_from_rows, quota_from_row, slot_from_row
from holdfast.engine.store.tables import LOWEST_PRIORITY
from holdfast.engine.store.transitions import Snapshot, StoreBase, record_events, record_refusals
from holdfast.engine.store.work_quotas import refuse_beyond_work_quotas
from holdfast.errors import BadRequest
from holdfast.tracing import NO_TRACER
from holdfast.wellformed import FlawKind, find_text_flaw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from holdfast.db import Database, Transaction
    from holdfast.engine.queue import Pauses
    from holdfast.engine.rules import Rules
    from holdfast.engine.slot import Slot
    from holdfast.engine.store.base import AdmissionRecorder, RequestWriter
    from holdfast.tracing import Tracer

    CostEstimator = Callable[[Transaction, Sequence[tuple[str, str]]], Mapping[tuple[str, str], float]]

CODES_BY_FLAW = {FlawKind.NUL: "nul_character", FlawKind.SURROGATE: "lone_surrogate"}


@dataclass(slots=True, kw_only=True)
class AdmissionCase:
    """A request, what is known about its owner, and the decision."""

    request: Request
    owner: OwnerId | None
    generation: int  # the newest generation of the owner
    slots: dict[str, Slot]
    rule: AdmissionRule
    job: JobId | None  # the active job, then the new one
    retry_at: Moment | None = None  # set if the quota refused the request

    @property
    def specs(self) -> tuple[SlotSpec, ...]:
        """The slots that the owner should have: those it has, and those requested."""
        if not self.slots:
            return self.request.slots
        wanted = {kind: SlotSpec(kind, slot.needs) for kind, slot in self.live_slots.items()}
        wanted |= {spec.kind: spec for spec in select_requestable(self.request.slots, self.slots.values())}
        return tuple(wanted.values())

    @property
    def live_slots(self) -> dict[str, Slot]:
        """The slots that are not being removed."""
        return {kind: slot for kind, slot in self.slots.items() if slot.state is not SlotState.DELETING}

    @property
    def dropping_count(self) -> int:
        """How many slots are being removed. The active job counts them as its own slots."""
        return len(self.slots) - len(self.live_slots)

    @property
    def accepted(self) -> bool:
        return self.rule.verdict is Verdict.ACCEPTED


class AdmissionContext(NamedTuple):
    """What the decisions depend on, read under the locks of the owners."""

    tx: Transaction
    snapshot: Snapshot
    now: Moment = Moment(0)
    pauses: Pauses = NO_PAUSES


class AdmissionStore(StoreBase):
    """Admits requests. N identical requests at once create one generation and one job."""

    def __init__(
        self,
        database: Database,
        rules: Rules,
        ids: Callable[[], str],
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(database, rules, wake)
        self._new_job_id = ids
        self.estimate_costs: CostEstimator = lambda _tx, _owners: {}
        self.tracer: Tracer = NO_TRACER
        self._group_commit = GroupCommit(self._admit_group)

    def admit(self, requests: Sequence[Request]) -> list[AdmissionResult]:
        """Decide on each request, in order. Accepted requests are durable when this returns.

        Example:
            store.admit([Request(base="handbook", owner="42", operation=Operation.RETRY)])
        """
        for request in requests:
            check_request(request)
        requests = self._add_trace(requests)
        if len(requests) == 1:
            return self._link_trace([self._group_commit.submit(requests[0])])
        results: dict[int, AdmissionResult] = {}
        for batch in split_requests(requests):
            results |= self._run_admission(lambda _, batch=batch: batch)  # type: ignore[misc]
        return self._link_trace([results[index] for index in range(len(requests))])

    def admit_with(self, write: RequestWriter, record: AdmissionRecorder | None = None) -> list[AdmissionResult]:
        """Admit the requests that `write` returns, in the transaction in which it writes: both commit or neither.

        The requests must be for different owners, at most `LARGEST_BATCH`. `record` receives the results in the same
        transaction. If the transaction conflicts with another one, both are called again.
        """

        def take(tx: Transaction) -> Mapping[int, Request]:
            requests = write(tx)
            for request in requests:
                check_request(request)
            return dict(enumerate(self._add_trace(requests)))

        return self._link_trace(list(self._run_admission(take, record).values()))

    def _add_trace(self, requests: Sequence[Request]) -> Sequence[Request]:
        """Add the current place in a trace. Another thread may commit the requests, so it is read here."""
        traceparent = self.tracer.traceparent()
        return requests if traceparent is None else [replace(one, traceparent=traceparent) for one in requests]

    def _link_trace(self, results: list[AdmissionResult]) -> list[AdmissionResult]:
        """Link the current trace to those of the jobs that requests joined instead of starting work."""
        if self.tracer.enabled:
            jobs = {result.job for result in results if result.job and result.verdict is not Verdict.ACCEPTED}
            self.tracer.link(list(self.find_traceparents(jobs).values()))
        return results

    def _admit_group(self, take: Callable[[], list[Request]]) -> list[AdmissionResult]:
        return list(self._run_admission(lambda _: dict(enumerate(take()))).values())

    def _run_admission(
        self, take: Callable[[Transaction], Mapping[int, Request]], record: AdmissionRecorder | None = None
    ) -> dict[int, AdmissionResult]:
        """Admit the requests that `take` returns, in one transaction.

        `take` is called when the transaction has begun, `record` before its commit.
        """

        def work(tx: Transaction) -> tuple[dict[int, AdmissionResult], list[SlotChange]]:
            cases, statuses, changes = self._admit(take(tx), tx)
            results = {index: _make_result(case, statuses) for index, case in cases.items()}
            if record is not None:
                record(tx, list(results.values()))
            return results, changes

        results, changes = self.database.write(work, durable=True)
        self._announce_changes(changes)
        return results

    def _admit(
        self, requests: Mapping[int, Request], tx: Transaction, *, counted: bool = True
    ) -> tuple[dict[int, AdmissionCase], Mapping[OwnerId, Status], list[SlotChange]]:
        """Admit within a transaction. Without `counted`, requests do not use the quota."""
        names = [[request.base, request.owner] for request in requests.values()]
        rows = [OwnerRow(*row) for row in tx.run(sql.LOCK_OWNERS_BY_NAME, names)]
        known = {(row.base, row.owner): row for row in rows}
        snapshot = Snapshot(tx, [row.id for row in rows])
        context = AdmissionContext(tx, snapshot)
        if known:  # decisions on new owners depend neither on time nor on pauses
            context = AdmissionContext(
                tx, snapshot, tx.run(sql.SELECT_NOW)[0][0], pauses_from_rows(tx.run(sql.SELECT_PAUSES))
            )
        cases = {
            index: self._judge(context, request, known.get((request.base, request.owner)))
            for index, request in requests.items()
        }
        if counted:
            _charge_quotas(
                tx,
                [
                    case
                    for case in cases.values()
                    if case.accepted and case.request.operation in BUILD_OPERATIONS and case.request.uses_quota
                ],
            )
            refuse_beyond_work_quotas(
                tx,
                [
                    case
                    for case in cases.values()
                    if case.accepted and case.request.operation in BUILD_OPERATIONS and case.request.details is not None
                ],
            )
        changes = self._accept(tx, [case for case in cases.values() if case.accepted], snapshot)
        self._record_refusals(tx, [case for case in cases.values() if not case.accepted])
        return cases, self._apply_effects(tx, snapshot, changes).statuses, changes

    def _record_refusals(self, tx: Transaction, cases: Sequence[AdmissionCase]) -> None:
        """Record requests that started no work, with the estimated cost of that work."""
        unpaid = [
            (case.request.base, case.request.owner)
            for case in cases
            if not case.request.cost and case.request.operation in BUILD_OPERATIONS and _has_unbuilt_slots(case)
        ]
        costs = self.estimate_costs(tx, unpaid) if unpaid else {}
        rows = [
            [
                case.request.base, case.request.owner, case.request.operation, case.rule.verdict, case.rule.reason,
                case.job, case.request.requester,
                costs.get((case.request.base, case.request.owner), case.request.cost),
            ]
            for case in cases
        ]  # fmt: skip
        record_refusals(tx, rows)

    def _judge(self, context: AdmissionContext, request: Request, row: OwnerRow | None) -> AdmissionCase:
        owner = row.id if row is not None else None
        slots = {slot.kind: slot for slot in context.snapshot.slots_of(owner)}
        situation = classify_situation(
            request,
            list(slots.values()),
            fingerprint=row.fingerprint if row is not None else None,
            now=context.now,
            rules=self.rules,
            overtaken=self._is_overtaken(context, slots.values(), context.pauses.last_resumed(request.base)),
            paused=context.pauses.active_pause(request.base) is not None,
        )
        rule = find_rule(request.operation, situation)
        return AdmissionCase(
            request=replace(request, operation=Operation.DELETE) if rule is RETRY_CLEANUP else request,
            owner=owner,
            generation=row.generation if row is not None else 0,
            slots=slots,
            rule=rule,
            job=next((slot.job for slot in slots.values() if slot.state in ACTIVE_STATES), None),
        )

    def _is_overtaken(self, context: AdmissionContext, slots: Iterable[Slot], resumed_at: Moment) -> bool:
        rows = [
            [slot.id, slot.job, slot.kind, slot.priority, slot.queued_at, resumed_at]
            for slot in slots
            if may_be_overtaken(slot, context.now, self.rules, resumed_at=resumed_at)
        ]
        return bool(context.tx.run(sql.SELECT_OVERTAKEN_SLOTS, rows))

    def _assign_generations(self, tx: Transaction, cases: Sequence[AdmissionCase], snapshot: Snapshot) -> None:
        """Give each request the next generation of its owner, and create new owners."""
        known = [case for case in cases if case.owner is not None]
        for case in known:
            case.generation += 1
        tx.run(sql.RAISE_GENERATIONS, [[case.owner, case.generation, case.request.fingerprint] for case in known])
        new = {(case.request.base, case.request.owner): case for case in cases if case.owner is None}
        rows = [[*name, case.request.fingerprint, str(Status.QUEUED)] for name, case in new.items()]
        for owner, base, name in tx.run(sql.CREATE_OWNERS, rows):
            case = new[base, name]
            case.owner, case.generation = owner, 1
            snapshot.statuses[owner] = Status.QUEUED
            snapshot.new_owners.add(owner)

    def _end_jobs(self, tx: Transaction, cases: Sequence[AdmissionCase]) -> None:
        """End the active jobs that these requests supersede, cancel or delete."""
        rows = [[case.owner, _derive_ended_outcome(case)] for case in cases if case.job is not None]
        events = [
            Event(type=f"job.{outcome}", base=base, owner=owner, job=job, generation=generation)
            for job, base, owner, generation, outcome in tx.run(sql.END_JOBS, rows)
        ]
        record_events(tx, events)

    def _accept(self, tx: Transaction, cases: Sequence[AdmissionCase], snapshot: Snapshot) -> list[SlotChange]:
        """Write accepted requests: generations, ended jobs, new jobs, changed slots."""
        cancels = [case for case in cases if case.request.operation is Operation.CANCEL]
        deletes = [case for case in cases if case.request.operation is Operation.DELETE]
        drops = [case for case in cases if case.request.operation is Operation.DROP]
        builds = [case for case in cases if case.request.operation in BUILD_OPERATIONS]
        follow_ups = [_make_drop_case(case) for case in cancels if case.dropping_count]
        self._assign_generations(tx, [*deletes, *drops, *builds, *follow_ups], snapshot)
        self._end_jobs(tx, cases)
        cancelled_rows = tx.run(sql.CANCEL_SLOTS, [[case.owner] for case in cancels])
        plans = [
            (case, plan_generation(case.rule.scope, case.specs, case.live_slots, case.request.kinds)) for case in builds
        ]
        self._open_jobs(tx, [(case, len(case.slots) or len(case.request.slots)) for case in deletes])
        created = self._create_slots_to_delete(tx, [case for case in deletes if not case.slots], snapshot)
        deleted_slots = [slot for case in deletes for slot in case.slots.values()]
        dropped_kinds = {case.owner: select_droppable(case.request.kinds, case.slots.values()) for case in drops}
        deleted_slots += [case.slots[kind] for case in drops for kind in dropped_kinds[case.owner]]
        self._open_jobs(tx, [(case, len(kinds) + case.dropping_count) for case, kinds in plans])
        self._open_jobs(tx, [(case, len(dropped_kinds[case.owner]) + case.dropping_count) for case in drops])
        self._open_jobs(tx, [(case, case.dropping_count) for case in follow_ups])
        reassigned = [case for case in (*builds, *drops, *follow_ups) if case.dropping_count]
        tx.run(sql.REASSIGN_DELETING_SLOTS, [[case.owner, case.job] for case in reassigned])
        by_owner = {case.owner: case for case in (*deletes, *drops)}
        rows = [[slot.id, *_make_deletion_cells(by_owner[slot.owner_id])] for slot in deleted_slots]
        record_events(tx, [_make_accepted_event(case) for case in follow_ups])
        started = [
            *created,
            *snapshot.changes_from_rows(tx.run(sql.MARK_DELETING, rows), Verb.DELETE),
            *self._raise_slots(tx, plans, snapshot),
        ]
        return [
            *snapshot.changes_from_rows(cancelled_rows, Verb.CANCEL),
            *_annotate_first_changes(started, [*deletes, *drops, *builds]),
        ]

    def _create_slots_to_delete(
        self, tx: Transaction, cases: Sequence[AdmissionCase], snapshot: Snapshot
    ) -> list[SlotChange]:
        """Create the slots of owners that were created by their own delete."""
        plans = [(case, dict.fromkeys((spec.kind for spec in case.specs), SlotState.QUEUED)) for case in cases]
        changes = self._raise_slots(tx, plans, snapshot)
        snapshot.slots.update((change.slot.id, change.slot) for change in changes)
        for case in cases:
            case.slots = {change.slot.kind: change.slot for change in changes if change.slot.owner_id == case.owner}
        return changes

    def _open_jobs(self, tx: Transaction, sizes: Sequence[tuple[AdmissionCase, int]]) -> None:
        rows, details = [], []
        for case, size in sizes:
            request = case.request
            case.job = request.new_job or JobId(self._new_job_id())
            rows.append([
                case.job, case.owner, request.base, request.owner, case.generation, str(request.operation),
                request.cause, request.requester, request.priority, size, request.payload, int(request.notify_on_end),
                request.traceparent,
            ])  # fmt: skip
            if request.details is not None:
                details.append([
                    case.job, request.base, request.owner, request.requester, request.details.project,
                    request.details.callback,
                ])  # fmt: skip
        tx.run(sql.OPEN_JOBS, rows)
        tx.run(OPEN_DETAILS, details)

    def _raise_slots(
        self, tx: Transaction, plans: Sequence[tuple[AdmissionCase, Mapping[str, SlotState]]], snapshot: Snapshot
    ) -> list[SlotChange]:
        """Write the new generation of existing slots, and create new slots."""
        new, old = [], []
        names = {}
        for case, kinds in plans:
            names[case.owner] = case.request
            needs = {spec.kind: spec.needs for spec in case.specs}
            for kind, state in kinds.items():
                row = [needs[kind], case.job, case.generation, str(state), case.request.priority]
                if kind in case.slots:
                    old.append([int(case.request.rung), case.slots[kind].id, *row])
                else:
                    new.append([int(case.request.rung), case.owner, kind, *row])
        changes = snapshot.changes_from_rows(tx.run(sql.RAISE_SLOTS, old), Verb.ADMIT)
        for made in tx.run(sql.CREATE_SLOTS, new):
            request = names[made[1]]
            slot = slot_from_row(made, request.base, request.owner)
            changes.append(SlotChange(verb=Verb.ADMIT, before=None, after=slot))
        return changes


def _make_result(case: AdmissionCase, statuses: Mapping[OwnerId, Status]) -> AdmissionResult:
    return AdmissionResult(
        verdict=case.rule.verdict,
        reason=case.rule.reason,
        status=statuses.get(case.owner or OwnerId(0), Status.NOT_INDEXED),
        job=case.job,
        generation=case.generation,
        retry_at=case.retry_at,
    )


def check_request(request: Request) -> None:
    """Refuse invalid requests, and text that a database cannot store."""
    if not request.base or not request.owner:
        raise BadRequest("request_unnamed")
    if not all(spec.kind for spec in request.slots):
        raise BadRequest("slot_kind_empty")
    _check_text(request)
    kinds = [spec.kind for spec in request.slots]
    if not request.kinds and request.operation in (Operation.RENEW, Operation.DROP):
        raise BadRequest("kinds_missing", operation=request.operation)
    if request.kinds and request.operation not in (Operation.RENEW, Operation.DROP):
        raise BadRequest("kinds_unexpected", operation=request.operation)
    if request.operation is Operation.RENEW and not set(request.kinds) <= set(kinds):
        raise BadRequest(
            "renewed_slot_not_listed", kinds=", ".join(kind for kind in request.kinds if kind not in kinds)
        )
    check_priority(request.priority)
    if not math.isfinite(request.cost):
        raise BadRequest("cost_not_finite", cost=request.cost)
    check_specs(request.slots)


def _check_text(request: Request) -> None:
    """Refuse NUL characters and lone surrogates, which the databases cannot store."""
    texts = {
        "base": request.base,
        "owner": request.owner,
        "slots": "".join(spec.kind for spec in request.slots),
        "kinds": "".join(request.kinds),
        "cause": request.cause,
        "requester": request.requester,
        "fingerprint": request.fingerprint or "",
        "payload": request.payload or "",
        "new_job": request.new_job or "",
        "project": request.details.project if request.details else "",
        "callback": (request.details.callback or "") if request.details else "",
    }
    for field, text in texts.items():
        check_text(field, text)


def check_text(field: str, text: str) -> None:
    flaw = find_text_flaw(text)
    if flaw is not None:
        raise BadRequest(CODES_BY_FLAW[flaw], field=field)


def check_priority(priority: int) -> None:
    if not 0 <= priority <= LOWEST_PRIORITY:
        raise BadRequest("priority_out_of_range", priority=priority, lowest=LOWEST_PRIORITY)


def split_requests(requests: Sequence[Request]) -> Iterator[dict[int, Request]]:
    """Split into batches of at most `LARGEST_BATCH`, with each owner at most once per batch. Keys are positions."""
    batch: dict[int, Request] = {}
    names: set[tuple[str, str]] = set()
    for index, request in enumerate(requests):
        name = (request.base, request.owner)
        if name in names or len(batch) == LARGEST_BATCH:
            yield batch
            batch, names = {}, set()
        batch[index] = request
        names.add(name)
    if batch:
        yield batch


def _make_deletion_cells(case: AdmissionCase) -> list[Any]:
    return [case.job, case.generation, case.request.priority]


def _make_drop_case(case: AdmissionCase) -> AdmissionCase:
    """Return the follow-up of a cancel: slots that are being removed continue in a job of their own."""
    return replace(
        case,
        request=replace(
            case.request, operation=Operation.DROP, payload=None, notify_on_end=False, job=None, new_job=None
        ),
    )


def _annotate_first_changes(changes: Iterable[SlotChange], cases: Iterable[AdmissionCase]) -> Iterator[SlotChange]:
    """Add operation, cause and requester to the first change of each job, so that a job needs no event of its own."""
    pending: dict[str | None, AdmissionCase] = {case.job: case for case in cases}
    for change in changes:
        case = pending.pop(change.slot.job, None)
        yield change if case is None else change._replace(note=_describe_request(case))


def _describe_request(case: AdmissionCase) -> dict[str, object]:
    request = case.request
    return {
        "operation": str(request.operation),
        "cause": request.cause,
        "requester": request.requester,
        "priority": request.priority,
    }


def _make_accepted_event(case: AdmissionCase) -> Event:
    """Return the event of a job that begins without a change of a slot."""
    request = case.request
    data = json.dumps(_describe_request(case))
    return Event("job.accepted", request.base, request.owner, job=case.job, generation=case.generation, data=data)


def _derive_ended_outcome(case: AdmissionCase) -> Outcome:
    """Return how the previously active job ends. A repeated clean-up continues in a new job."""
    if case.rule is RETRY_CLEANUP:
        return Outcome.SUPERSEDED
    if case.request.operation is Operation.DELETE:
        return Outcome.DELETED
    return Outcome.CANCELLED if case.request.operation is Operation.CANCEL else Outcome.SUPERSEDED


def _charge_quotas(tx: Transaction, builds: Sequence[AdmissionCase]) -> None:
    """Count builds against the quotas of their bases, and refuse those beyond.

    The rows of the quotas are locked until the commit, so concurrent requests cannot exceed a quota.
    """
    bases = sorted({case.request.base for case in builds})
    quotas = {quota.base: quota for quota in map(quota_from_row, tx.run(sql.LOCK_QUOTAS, [[base] for base in bases]))}
    if not quotas:
        return
    now = tx.run(sql.SELECT_NOW)[0][0]
    for case in builds:
        quota = quotas.get(case.request.base)
        if quota is None:
            continue
        if quota.remaining(now):
            today = quota.as_of(now)
            quotas[quota.base] = replace(today, used=today.used + 1)
        else:
            case.rule, case.retry_at = QUOTA_EXHAUSTED, quota.resets_at(now)
    tx.run(sql.UPDATE_QUOTA_USE, [[quota.base, quota.day, quota.used] for quota in quotas.values()])


def _has_unbuilt_slots(case: AdmissionCase) -> bool:
    """Return whether a build would cost anything: slots that are ready cost nothing again."""
    return any(slot.state is not SlotState.READY for slot in case.live_slots.values())
