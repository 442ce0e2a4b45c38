"""The invariants, implemented a second time and independently, from raw rows and from the event log.

No check calls the code under test to decide what is right.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.engine.states import TRANSITIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.engine.admission import AdmissionResult, Request
    from holdfast.engine.slot import Ticket
    from tests.simulation.world import World

ACTIVE = {"blocked", "queued", "running", "waiting", "deleting"}
REST = {"ready", "failed", "cancelled"}
OUTCOMES = {"success", "degraded", "failed", "superseded", "cancelled", "deleted"}
FIELDS = (
    "id, owner_id, kind, needs, job, wanted, built, source, missing, state, priority, fence, holder, until, due_at,"
    " queued_at, claimed_at, progress_at, rung_at, attempts, step, done"
)


class Violation(AssertionError):
    """A guarantee was violated."""

    def __init__(self, promise: str, what: str) -> None:
        super().__init__(f"{promise}: {what}")
        self.promise = promise


class Row(NamedTuple):
    id: int
    owner_id: int
    kind: str
    needs: str | None
    job: str
    wanted: int
    built: int
    source: int | None
    missing: int
    state: str
    priority: int
    fence: int
    holder: str | None
    until: int | None
    due_at: int | None
    queued_at: int
    claimed_at: int | None
    progress_at: int | None
    rung_at: int | None
    attempts: int
    step: int
    done: int


class Told(NamedTuple):
    """The state of a slot according to the event log."""

    state: str | None
    generation: int
    fence: int


class Checker:
    """Checks all invariants after every step."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.sql = world.sql
        self.rows: dict[int, Row] = {}
        self.rested: dict[tuple[int, int], str] = {}
        self.done: dict[tuple[int, int], tuple[int, int]] = {}
        self.doomed: set[int] = set()
        self.told: dict[tuple[str, str], Told] = {}
        self.last_event = 0
        self.transitions: Counter[str] = Counter()
        self.claims: Counter[tuple[int, int]] = Counter()
        self.payments: Counter[tuple[int, int, str]] = Counter()
        self.accepted: set[str] = set()
        self.ended: Counter[str] = Counter()
        self.most_attempts = world.rules.retry.max_attempts

    def read(self) -> dict[int, Row]:
        return {row[0]: Row(*row) for row in self.sql.execute(f"SELECT {FIELDS} FROM slots ORDER BY id")}  # noqa: S608

    def check(self) -> None:
        rows = self.read()
        completed = self._read_events()
        for row in rows.values():
            self._check_slot(row, self.rows.get(row.id), completed)
        for owner in {row.owner_id for row in rows.values()}:
            self._check_owner(owner, [row for row in rows.values() if row.owner_id == owner])
        self._check_jobs(rows)
        self._check_nothing_left(rows)
        self._check_told(rows)
        self.rows = rows

    def at_rest(self) -> bool:
        return all(row.state in REST for row in self.rows.values())

    def final(self) -> None:
        """I6: every accepted request has exactly one outcome. Runs without faults paid for every text once."""
        for job in self.accepted:
            outcomes = self.sql.execute("SELECT outcome FROM jobs WHERE id = ?", (job,)).fetchall()
            self._require("I6", len(outcomes) == 1 and outcomes[0][0] is not None, "{} has no outcome", job)
            self._require("I6", self.ended[job] == 1, "{} ended {} times", job, self.ended[job])
        if self.world.seed % 10 == 0:
            for what, count in self.payments.items():
                self._require("I9", count == 1, "{} was paid {} times without any fault", what, count)

    def _check_slot(self, row: Row, before: Row | None, completed: set[tuple[int, str]]) -> None:
        self._require("I1", 0 <= row.built <= row.wanted, "{}", row)
        if before is not None:
            self._require("I1", row.wanted >= before.wanted and row.built >= before.built, "{} -> {}", before, row)
            self._require("I1", row.fence >= before.fence, "the fence fell: {} -> {}", before, row)
            moved = (row.built, row.source) != (before.built, before.source)
            self._require("I4", not moved or (row.owner_id, row.kind) in completed, "served without a commit: {}", row)
        if row.id in self.doomed:
            self._require("I5", row.state == "deleting", "came back from deletion: {}", row)
        if row.state == "deleting":
            self.doomed.add(row.id)
        rested = self.rested.get((row.id, row.wanted))
        self._require("I7", rested in (None, row.state), "{} became {}", rested, row)
        if row.state in REST:
            self.rested[row.id, row.wanted] = row.state
            self._require("I8", row.holder is None, "at rest with a lease: {}", row)
        if row.state in ("running", "waiting", "deleting"):
            self._require("I10", row.due_at is not None, "nobody will look at it: {}", row)
        if row.state == "running":
            assert row.due_at is not None
            assert row.until is not None
            self._require("I10", row.due_at <= row.until, "looked at after its lease: {}", row)
        if row.state != "deleting":
            self._require("I13", row.attempts <= self.most_attempts, "too many attempts: {}", row)
        progress = self.done.get((row.id, row.wanted), (0, 0))
        self._require("I22", (row.step, row.done) >= progress, "progress fell from {}: {}", progress, row)
        self.done[row.id, row.wanted] = (row.step, row.done)

    def _check_owner(self, owner: int, rows: Sequence[Row]) -> None:
        kinds = {row.kind: row for row in rows}
        ((generation, status),) = self.sql.execute("SELECT generation, status FROM owners WHERE id = ?", (owner,))
        self._require("I1", generation >= max(row.wanted for row in rows), "a slot is ahead of its owner")
        self._require("status", status == self._status(rows), "{} is cached for {}", status, rows)
        for row in rows:
            if row.state == "blocked":
                need = kinds[str(row.needs)]
                self._require("I10", need.state in ACTIVE and need.job == row.job, "blocked by nothing: {}", row)
            if row.built and row.state != "deleting":
                self._check_served(row, kinds["content"])

    def _check_served(self, row: Row, content: Row) -> None:
        listed = [
            text
            for (text,) in self.sql.execute(
                "SELECT text FROM sim_manifest WHERE slot = ? AND build = ? ORDER BY ordinal", (content.id, row.source)
            )
        ]
        wanted = self.world.texts[row.owner_id, row.built]  # type: ignore[index]
        self._require("I2", listed == wanted, "serves {}, its generation is about {}: {}", listed, wanted, row)
        if row.kind != "content":
            stored = {text for (text,) in self.sql.execute("SELECT text FROM sim_rows WHERE slot = ?", (row.id,))}
            visible = stored & set(listed)
            least = len(set(listed)) - row.missing
            self._require("I3", least <= len(visible), "{} of {} are visible: {}", len(visible), len(listed), row)

    def _check_jobs(self, rows: dict[int, Row]) -> None:
        unsettled = Counter(row.job for row in rows.values() if row.state in ACTIVE)
        seen: set[int] = set()
        for job, owner, still_open, outcome in self.sql.execute("SELECT id, owner_id, open, outcome FROM jobs"):
            self._require("I23", still_open == unsettled[job], "{} says {}, has {}", job, still_open, unsettled[job])
            if outcome is None:
                self._require("I15", owner not in seen, "two active jobs for owner {}", owner)
                seen.add(owner)

    def _check_nothing_left(self, rows: dict[int, Row]) -> None:
        for table in ("sim_manifest", "sim_rows"):
            kept = {slot for (slot,) in self.sql.execute(f"SELECT DISTINCT slot FROM {table}")}  # noqa: S608
            self._require("I5", kept <= set(rows), "{} keeps rows of forgotten slots {}", table, kept - set(rows))

    def _check_told(self, rows: dict[int, Row]) -> None:
        names = dict(self.sql.execute("SELECT id, owner FROM owners"))
        told = {key: one for key, one in self.told.items() if one.state is not None}
        real = {(names[row.owner_id], row.kind): Told(row.state, row.wanted, row.fence) for row in rows.values()}
        self._require("I22", told == real, "the log tells {}, the truth is {}", told, real)

    def _read_events(self) -> set[tuple[int, str]]:
        """Read new events and return the slots that were completed since the last call."""
        completed = set()
        names = {name: id_ for id_, name in self.sql.execute("SELECT id, owner FROM owners")}
        query = "SELECT id, type, owner, kind, job, generation, fence, data FROM events WHERE id > ? ORDER BY id"
        for id_, type_, owner, kind, job, generation, fence, data in self.sql.execute(query, (self.last_event,)):
            self._require("I22", id_ > self.last_event, "an event id came twice")
            self.last_event = id_
            thing, _, verb = type_.partition(".")
            if thing in ("job", "queue"):
                self.ended[job] += verb in OUTCOMES
                continue
            self._follow((owner, kind), verb, generation, fence, json.loads(data))
            if verb == "completed":
                completed.add((names.get(owner, 0), kind))
        return completed

    def _follow(self, name: tuple[str, str], verb: str, generation: int, fence: int, data: dict[str, Any]) -> None:
        owner, kind = name
        before = self.told.get(name, Told(None, 0, 0))
        move = (verb, data["from"], data["to"])
        self.transitions["{}:{}>{}".format(*move)] += 1
        self._require("states", move in TRANSITIONS, "{} is not allowed", move)
        self._require("I22", data["from"] == before.state, "{}/{} was {}, the log says {}", owner, kind, before, move)
        if before.state is not None:
            raises = verb in ("admitted", "deleting")
            right = generation > before.generation if raises else generation == before.generation
            self._require(
                "I1", right, "{}/{} {}: generation {} -> {}", owner, kind, move, before.generation, generation
            )
        if verb in ("expired", "given_up") and before.state == "running":
            self._require("I14", fence == before.fence + 1, "a takeover did not raise the fence")
        self.told[name] = Told(data["to"], generation, fence)

    @staticmethod
    def _status(rows: Sequence[Row]) -> str:
        rows = [row for row in rows if row.state != "deleting"]  # a dropped slot does not affect the status
        states = [row.state for row in rows]
        active = {row.job for row in rows if row.state in ACTIVE}
        if not rows:
            return "deleting"
        if {"running", "waiting"} & set(states):
            return "indexing"
        if active:
            return "indexing" if any(row.state in REST and row.job in active for row in rows) else "queued"
        serving = [row.state == "ready" or (row.state == "cancelled" and row.built > 0) for row in rows]
        if all(serving) and not any(row.missing for row in rows):
            return "success"
        needed = {row.needs for row in rows}
        if any(row.built for row in rows if row.kind not in needed):  # a slot that others need is not searched
            return "degraded"
        return "failed" if "failed" in states else "not_indexed"

    def paid(self, ticket: Ticket, text: str) -> None:
        """I8 and I9: a worker pays only with a valid lease by its own clock, and at most once per claim."""
        hand = next(
            one.executor.heartbeat._held[ticket.slot]
            for one in self.world.processes
            if hasattr(one, "executor")
            and ticket.slot in one.executor.heartbeat._held
            and one.executor.heartbeat._held[ticket.slot].ticket is ticket
        )
        age = self.world.clock.monotonic() - hand.renewed
        self._require(
            "I8", age < self.world.rules.lease.total_seconds(), "{} works {} s after its renewal", ticket, age
        )
        self._require("I8", not hand.lost, "{} works although it knows that it lost", ticket)
        what = (ticket.slot, ticket.generation, text)
        self.payments[what] += 1
        allowed = self.claims[ticket.slot, ticket.generation]
        self._require("I9", self.payments[what] <= allowed, "{} paid more often than claimed ({})", what, allowed)

    def acknowledged(self, holder: str) -> None:
        """I11: a worker that acknowledges a message holds no slot, unless the database failed to answer."""
        held = [row for row in self.read().values() if row.holder == holder and row.state == "running"]
        lost = self.world.faults["store_lost_before"] + self.world.faults["store_lost_after"]
        self._require("I11", not held or lost > 0, "acknowledged while holding {}", held)

    def situation(self, request: Request) -> tuple[str, set[str]]:
        """Return the expected verdict, and the kinds that an accepted request must raise."""
        found = self.sql.execute(
            "SELECT id, fingerprint FROM owners WHERE base = ? AND owner = ?", (request.base, request.owner)
        ).fetchone()
        rows = [row for row in self.read().values() if found and row.owner_id == found[0]]
        gone = {row.kind for row in rows if row.state == "deleting"}
        kinds = {row.kind: row for row in rows if row.kind not in gone}
        wishes = _standing({spec.kind: spec.needs for spec in request.slots}, gone)
        needs = {kind: row.needs for kind, row in kinds.items()} | wishes
        lacking = {
            kind
            for kind, need in needs.items()
            if kind not in kinds or kinds[kind].state != "ready" or kinds[kind].missing or kinds[kind].needs != need
        }
        for _ in needs:
            lacking |= {kind for kind, need in needs.items() if need in lacking}
        named = set(request.kinds)
        if request.operation == "drop":
            raised = self._going(named, list(kinds.values()))
        elif request.operation == "renew":
            raised = named & wishes.keys()
            for _ in needs:
                raised |= {str(needs[kind]) for kind in raised if needs[kind] in lacking}
            for _ in needs:
                raised |= {kind for kind, need in needs.items() if need in raised}
        else:
            raised = lacking if request.operation in ("index", "retry") else set(needs)
        done = not raised if request.operation == "drop" else not lacking
        verdict = self._verdict(request, rows, found[1] if found else None, complete=done)
        if verdict == "accepted" and request.operation == "renew" and not named <= wishes.keys():
            verdict = "rejected"
        if request.operation == "delete" or (rows and len(gone) == len(rows)):
            return verdict, {row.kind for row in rows}
        return verdict, raised | gone

    @staticmethod
    def _going(named: set[str], live: Sequence[Row]) -> set[str]:
        """Return the kinds that a drop removes. It keeps every kind that a remaining kind needs."""
        stays = {row.kind for row in live if row.kind not in named}
        for _ in live:
            stays |= {str(row.needs) for row in live if row.kind in stays and row.needs is not None}
        return {row.kind for row in live} - stays

    def _verdict(self, request: Request, rows: Sequence[Row], fingerprint: str | None, *, complete: bool) -> str:
        operation = request.operation
        active = any(row.state in ACTIVE - {"deleting"} for row in rows)
        if not rows and (operation not in ("index", "force", "change") or not request.slots):
            return "rejected"
        if rows and all(row.state == "deleting" for row in rows):
            if operation == "retry" and self._held_up(rows):
                return "accepted"
            return "joined" if operation in ("delete", "retry") else "rejected"
        if operation == "change" and request.fingerprint == fingerprint:
            return "joined" if active else "skipped"
        if operation in ("delete", "change"):
            return "accepted"
        if operation == "cancel":
            return "accepted" if active else "skipped"
        if operation in ("reindex", "renew", "drop"):
            return "rejected" if active else "skipped" if operation == "drop" and complete else "accepted"
        if active:
            return "accepted" if self._stuck(rows) else "joined"
        return "skipped" if complete and operation != "force" else "accepted"

    def _held_up(self, rows: Sequence[Row]) -> bool:
        """Return whether a clean-up waits for a later attempt and no worker runs it."""
        now = self.world.clock.now()
        held = any(row.until is not None and row.until > now for row in rows)
        return not held and any(row.due_at is not None and row.due_at > now for row in rows)

    def paused(self) -> bool:
        """Return whether the queue is paused. The simulation has only one base."""
        return bool(self.sql.execute("SELECT 1 FROM pauses WHERE resumed_at IS NULL").fetchall())

    def cancelled(self, job: str) -> None:
        """A cancel by job id ends that job if it is active, and changes nothing else."""
        query = "SELECT id, owner_id, outcome, operation FROM jobs"
        before = {row[0]: row for row in self.sql.execute(query)}
        rows = [row for row in self.read().values() if row.job == job]
        building = any(row.state in ACTIVE - {"deleting"} for row in rows)
        owned = [row.state for row in self.read().values() if row.owner_id == before[job][1]]
        gone = bool(rows) and set(owned) == {"deleting"}
        (answer,) = self.world.store.cancel_jobs([job])
        _, owner, outcome, operation = before[job]
        verdict = "rejected" if gone and not outcome else "accepted" if building else "skipped"
        self._require("admission", answer.verdict == verdict, "cancel of {} answered {}", before[job], answer)
        after = {row[0]: row for row in self.sql.execute(query) if row[0] in before}
        ended = {job: (job, owner, "cancelled", operation)} if verdict == "accepted" else {}
        self._require("admission", after == before | ended, "cancel of {} made {} of {}", job, after, before)

    def _stuck(self, rows: Sequence[Row]) -> bool:
        if self.paused():
            return False
        now, rules, everything = self.world.clock.now(), self.world.rules, self.read().values()
        resumed = self.sql.execute("SELECT coalesce(max(resumed_at), 0) FROM pauses").fetchone()[0]
        ranked = dict(self.sql.execute("SELECT id, coalesce(prioritised_at, 0) FROM jobs"))
        for row in rows:
            still = now - (row.progress_at or now)
            if row.state == "running" and still >= rules.stall.total_seconds() * 1_000_000:
                return True
            since = max(row.queued_at, resumed)
            if row.state == "queued" and now - since >= rules.overtaken_after.total_seconds() * 1_000_000:
                peers = [one for one in everything if (one.kind, one.priority) == (row.kind, row.priority)]
                for one in peers:
                    fair = max(resumed, ranked[row.job], ranked[one.job])
                    if one.queued_at > row.queued_at and one.claimed_at is not None and one.claimed_at >= fair:
                        return True
        return False

    def answered(self, request: Request, expected: tuple[str, set[str]], answers: Sequence[AdmissionResult]) -> None:
        """I15 and the admission table: the first answer is the expected one, and the others follow from it."""
        verdict, kinds = expected
        first = answers[0]
        self._require("admission", first.verdict == verdict, "{} answered {}, not {}", request, first, verdict)
        self._require("I15", sum(answer.accepted for answer in answers) <= 1, "accepted twice: {}", answers)
        named = {answer.job for answer in answers if answer.job is not None}
        self._require("I15", len(named) <= 1 or request.operation == "cancel", "two jobs for one wish: {}", answers)
        if not first.accepted or request.operation == "cancel":
            return
        assert first.job is not None
        self.accepted.add(first.job)
        raised = {row.kind for row in self.read().values() if row.job == first.job}
        self._require("admission", raised == kinds, "{} raised {}, not {}", request, raised, kinds)

    def wrote(self, verb: str, before: dict[int, Row], tickets: Sequence[Any], refused: set[int]) -> None:
        """I4 and I12: a write is kept exactly if its ticket, or the row that was read, is still valid."""
        for ticket in tickets:
            row = before.get(ticket.slot if hasattr(ticket, "slot") else ticket.id)
            kept = (ticket.slot if hasattr(ticket, "slot") else ticket.id) not in refused
            right = row is not None and self._stands(verb, row, ticket)
            if kept and verb in ("ring", "expire", "give_up"):
                self.decided(verb, row)
            self._require(
                "I4", kept == right, "{} of {} was {} at {}", verb, ticket, "kept" if kept else "refused", row
            )

    def _taken_rightly(self, row: Row) -> bool:
        """Return whether the reconciler may take this slot from its holder."""
        now, rules = self.world.clock.now(), self.world.rules
        if row.holder is None or row.until is None:
            return False
        return (
            row.holder in self.world.known_dead
            or row.until <= now
            or (row.progress_at is not None and now - row.progress_at >= rules.stall.total_seconds() * 1_000_000)
            or (row.claimed_at is not None and now - row.claimed_at >= rules.deadline.total_seconds() * 1_000_000)
        )

    def decided(self, verb: str, row: Row | None) -> None:
        """I14: the slot justifies every action of the reconciler, unless the clock jumped in between."""
        if row is None or self.world.faults["clock_jump"]:
            return
        now = self.world.clock.now()
        free = row.until is None or row.until <= now
        spent = row.attempts >= self.world.rules.retry.max_attempts
        if verb == "expire":
            self._require("I14", self._taken_rightly(row), "taken without a reason: {}", row)
        if verb == "give_up":
            self._require("I14", spent and (free or self._taken_rightly(row)), "given up without a reason: {}", row)
        if verb == "ring":
            due = row.due_at is None or row.due_at <= now
            free = free or self._taken_rightly(row)  # the lease was renewed after the read, but is past its deadline
            claimable = row.state in ("queued", "waiting", "running", "deleting") and free and due
            lowered = self.world.faults["fewer_attempts"] > 0  # the limit may have changed after the read
            self._require(
                "I10", claimable and (not spent or lowered or row.state == "deleting"), f"rung in vain: {row}"
            )

    def tended(self) -> None:
        """I10 and I13: after an undisturbed pass no slot has a dead or stalled holder, or attempts used up."""
        now = self.world.clock.now()
        for row in self.read().values():
            alive = row.until is not None and row.until > now
            self._require("I10", not (alive and self._taken_rightly(row)), "left with its holder: {}", row)
            free = (row.until is None or row.until <= now) and (row.due_at is None or row.due_at <= now)
            spent = row.attempts >= self.world.rules.retry.max_attempts
            timed = row.state == "running" or (row.state == "waiting" and not self.paused())
            self._require("I13", not (timed and free and spent), "spent and not given up: {}", row)

    def _stands(self, verb: str, row: Row, shown: Any) -> bool:
        if verb == "release":
            return row.fence == shown.fence and row.holder is not None
        if verb in ("claim", "claim_next"):
            now = self.world.clock.now()
            spent = row.attempts >= self.world.rules.retry.max_attempts and row.state != "deleting"
            return (
                row.wanted == shown.generation
                and row.state in ("queued", "waiting", "running", "deleting")
                and (row.due_at is None or row.due_at <= now)
                and (row.until is None or row.until <= now)
                and not spent
                and (row.state == "deleting" or not self.paused())
            )
        if verb in ("ring", "expire", "give_up"):
            same = (row.wanted, row.fence, row.state, row.due_at, row.until, row.holder)
            read = (shown.wanted, shown.fence, shown.state, shown.due_at, shown.until, shown.holder)
            rest = self.world.rules.ring_again.total_seconds() * 1_000_000
            late = row.rung_at is None or row.rung_at <= self.world.clock.now() - rest
            rung = late and (row.state == "deleting" or not self.paused())
            return same == read and (verb != "ring" or rung)
        state = "deleting" if shown.removing else "running"
        return (row.wanted, row.fence, row.state) == (shown.generation, shown.fence, state)

    def _require(self, promise: str, holds: bool, what: str, *values: object) -> None:
        if not holds:  # only a violation is formatted: most of the time would go into texts that nobody reads
            raise Violation(promise, what.format(*values))


def _standing(wishes: dict[str, str | None], gone: set[str]) -> dict[str, str | None]:
    """Return the requested kinds that do not need a slot that is being removed."""
    for _ in wishes:
        gone = gone | {kind for kind, need in wishes.items() if need in gone}
    return {kind: need for kind, need in wishes.items() if kind not in gone}
