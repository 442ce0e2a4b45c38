"""A reference model of the engine: a dictionary and a few rules, without SQL, locks or batches.

The highest generation wins, a delete wins over everything, and a settled slot moves only in a new generation. The
model is written from the design, not from the code.
"""

from __future__ import annotations

from dataclasses import dataclass, field

ACTIVE = {"blocked", "queued", "running", "waiting"}
LEASE, STALL, DEADLINE, OVERTAKEN = 120, 2700, 21600, 600
ATTEMPTS = 4


@dataclass
class ModelSlot:
    kind: str
    needs: str | None
    job: int
    wanted: int
    state: str
    queued_at: int
    built: int = 0
    missing: int = 0
    fence: int = 0
    until: int | None = None
    due: int | None = None
    claimed_at: int | None = None
    attempts: int = 0
    priority: int = 5

    @property
    def complete(self) -> bool:
        return self.state == "ready" and self.missing == 0

    @property
    def whole(self) -> bool:
        """Return whether the slot serves a complete result: the newest, or an older one after a cancelled change."""
        return self.missing == 0 and (self.state == "ready" or (self.state == "cancelled" and self.built > 0))

    def rest(self, state: str, *, fenced: bool = False) -> None:
        self.state, self.until, self.due = state, None, None
        self.fence += fenced


@dataclass
class ModelOwner:
    generation: int = 0
    fingerprint: str | None = None
    slots: dict[str, ModelSlot] = field(default_factory=dict)

    def above(self, kinds: set[str]) -> set[str]:
        found = set(kinds)
        while True:
            more = {slot.kind for slot in self.live if slot.needs in found} - found
            if not more:
                return found
            found |= more

    def below(self, kinds: set[str]) -> set[str]:
        found = set(kinds)
        while more := {self.slots[kind].needs for kind in found} - found - {None}:
            found |= more  # type: ignore[arg-type]
        return found

    @property
    def live(self) -> list[ModelSlot]:
        return [slot for slot in self.slots.values() if slot.state != "deleting"]

    def going(self, kinds: set[str]) -> set[str]:
        """Return the kinds that a drop removes: the named ones, except those that a remaining slot needs."""
        live = {slot.kind for slot in self.live}
        stays = self.below(live - kinds)
        return (live & kinds) - stays

    def possible(self, wishes: dict[str, str | None]) -> dict[str, str | None]:
        """Return the requested kinds that do not depend on a slot that is being removed."""

        def stands(kind: str | None) -> bool:
            if kind is None:
                return True
            gone = kind in self.slots and self.slots[kind].state == "deleting"
            return not gone and stands(wishes[kind])

        return {kind: needs for kind, needs in wishes.items() if stands(kind)}

    @property
    def status(self) -> str:
        slots = self.live
        states = {slot.state for slot in slots}
        if not slots:
            return "deleting"
        working = {slot.job for slot in slots if slot.state in ACTIVE}
        if working:
            settled = any(slot.job in working and slot.state not in ACTIVE for slot in slots)
            return "indexing" if settled or states & {"running", "waiting"} else "queued"
        if all(slot.whole for slot in slots):
            return "success"
        needed = {slot.needs for slot in slots}
        if any(slot.built for slot in slots if slot.kind not in needed):
            return "degraded"
        return "failed" if "failed" in states else "not_indexed"


class Model:
    """The expected contents of the store."""

    def __init__(self) -> None:
        self.now = 0
        self.jobs = 0
        self.outcomes: dict[int, str | None] = {}
        self.owners: dict[str, ModelOwner] = {}
        self.pauses: set[str] = set()  # "" for the whole queue, or the name of a base
        self.resumed = 0
        self.ranked: dict[int, int] = {}  # job -> time of its last change of priority

    def pause(self, what: str) -> bool:
        changed = what not in self.pauses
        self.pauses.add(what)
        return changed

    def resume(self, what: str) -> bool:
        if what not in self.pauses:
            return False
        self.pauses.remove(what)
        self.resumed = self.now
        return True

    def cancel(self, job: int) -> str:
        for owner in self.owners.values():
            states = {slot.state for slot in owner.slots.values() if slot.job == job}
            if "deleting" in states and not owner.live:
                return "rejected"
            if states & ACTIVE:
                self._accept(owner, "cancel", {}, None, set())
                return "accepted"
        return "skipped"

    def rank(self, job: int, priority: int) -> str:
        slots = [slot for owner in self.owners.values() for slot in owner.slots.values() if slot.job == job]
        unsettled = [slot for slot in slots if slot.state in ACTIVE | {"deleting"}]
        if not unsettled or all(slot.priority == priority for slot in unsettled):
            return "skipped"
        self.ranked[job] = self.now
        for slot in unsettled:
            slot.priority = priority
        return "accepted"

    def ask(
        self,
        name: str,
        operation: str,
        wishes: dict[str, str | None],
        fingerprint: str | None,
        kinds: set[str] = frozenset(),  # type: ignore[assignment]
    ) -> str:
        owner = self.owners.get(name)
        if owner is None:
            if operation not in ("index", "force", "change") or not wishes:
                return "rejected"
            owner = self.owners[name] = ModelOwner()
        status = owner.status if owner.slots else "new"
        if status == "deleting":
            if operation == "retry" and self._held_up(owner):
                self._accept(owner, operation, {}, None, set())
                return "accepted"
            return "joined" if operation in ("delete", "retry") else "rejected"
        busy = status in ("queued", "indexing")
        wishes = owner.possible(wishes)
        if operation in ("renew", "drop"):
            whole = kinds <= wishes.keys() if operation == "renew" else bool(owner.going(kinds))
            verdict = "accepted" if whole and not busy else "rejected" if busy or operation == "renew" else "skipped"
        else:
            verdict = self._verdict(owner, operation, wishes, fingerprint, busy=busy)
        if verdict == "accepted":
            self._accept(owner, operation, wishes, fingerprint, kinds)
        return verdict

    def _verdict(
        self, owner: ModelOwner, operation: str, wishes: dict[str, str | None], fingerprint: str | None, *, busy: bool
    ) -> str:
        same = operation == "change" and fingerprint == owner.fingerprint and bool(owner.slots)
        if same:
            return "joined" if busy else "skipped"
        if operation == "cancel":
            return "accepted" if busy else "skipped"
        if operation == "reindex":
            return "rejected" if busy else "accepted"
        if operation in ("delete", "change"):
            return "accepted"
        if busy:
            return "accepted" if self._stuck(owner) else "joined"
        complete = owner.slots and wishes.keys() <= owner.slots.keys()
        complete = complete and all(slot.complete for slot in owner.live)
        return "skipped" if complete and operation != "force" else "accepted"

    def _held_up(self, owner: ModelOwner) -> bool:
        """Return whether the clean-up waits for a later attempt and no worker holds any of its slots."""
        slots = owner.slots.values()
        held = any(slot.until is not None and slot.until > self.now for slot in slots)
        return not held and any(slot.due is not None and slot.due > self.now for slot in slots)

    def _stuck(self, owner: ModelOwner) -> bool:
        if self.pauses:
            return False
        everything = [slot for one in self.owners.values() for slot in one.slots.values()]
        for slot in owner.slots.values():
            if slot.state == "running" and slot.claimed_at is not None and self.now - slot.claimed_at >= STALL:
                return True
            same = [one for one in everything if (one.kind, one.priority) == (slot.kind, slot.priority)]
            younger = [one for one in same if one.queued_at > slot.queued_at]
            old = slot.state == "queued" and self.now - max(slot.queued_at, self.resumed) >= OVERTAKEN
            if old and any(one.claimed_at is not None and self._wrongly(one, slot) for one in younger):
                return True
        return False

    def _wrongly(self, first: ModelSlot, slot: ModelSlot) -> bool:
        """Return whether `first` was claimed while nothing was paused and both had their current priority."""
        since = max(self.resumed, self.ranked.get(first.job, 0), self.ranked.get(slot.job, 0))
        return first.claimed_at is not None and first.claimed_at >= since

    def _accept(
        self,
        owner: ModelOwner,
        operation: str,
        wishes: dict[str, str | None],
        fingerprint: str | None,
        kinds: set[str],
    ) -> None:
        dropped = [slot for slot in owner.slots.values() if slot.state == "deleting"]
        replaced = {slot.job for slot in owner.slots.values() if slot.state in ACTIVE} | {slot.job for slot in dropped}
        ending = {"delete": "deleted", "cancel": "cancelled"}.get(operation, "superseded")
        for job in replaced:
            self.outcomes[job] = ending
        if operation == "cancel":
            for slot in owner.slots.values():
                if slot.state in ACTIVE:
                    slot.rest("cancelled", fenced=True)
            if not dropped:
                return
        owner.generation += 1
        owner.fingerprint = fingerprint or owner.fingerprint
        self.jobs += 1
        self.outcomes[self.jobs] = None
        for slot in dropped:  # the new job takes over the unfinished removals
            slot.job = self.jobs
        if operation in ("delete", "drop") or (owner.slots and not owner.live):
            self._remove(owner, owner.going(kinds) if operation == "drop" else set(owner.slots))
        elif operation != "cancel":
            self._build(owner, operation, wishes, kinds)

    def _remove(self, owner: ModelOwner, kinds: set[str]) -> None:
        for kind in kinds:
            slot = owner.slots[kind]
            self._raise(slot, owner.generation, "deleting")
            slot.due = max(self.now, slot.until or 0)

    def _build(self, owner: ModelOwner, operation: str, wishes: dict[str, str | None], kinds: set[str]) -> None:
        for kind, needs in wishes.items():
            owner.slots.setdefault(kind, ModelSlot(kind, needs, 0, 0, "new", self.now)).needs = needs
        everything = operation in ("change", "force", "reindex")
        lacking = {slot.kind for slot in owner.live if everything or not slot.complete}
        raised = owner.above(kinds | (owner.below(kinds) & lacking) if operation == "renew" else lacking)
        for kind in raised:
            slot = owner.slots[kind]
            self._raise(slot, owner.generation, "blocked" if slot.needs in raised else "queued")

    def _raise(self, slot: ModelSlot, generation: int, state: str) -> None:
        slot.wanted, slot.job, slot.state = generation, self.jobs, state
        slot.attempts, slot.due, slot.claimed_at, slot.queued_at = 0, None, None, self.now
        slot.priority = 5

    def claim(self, slot: ModelSlot, generation: int) -> bool:
        may = (
            slot.wanted == generation
            and slot.state in ("queued", "waiting", "running", "deleting")
            and (slot.due is None or slot.due <= self.now)
            and (slot.until is None or slot.until <= self.now)
            and (slot.state == "deleting" or (slot.attempts < ATTEMPTS and not self.pauses))
        )
        if may:
            slot.state = "deleting" if slot.state == "deleting" else "running"
            slot.fence += 1
            slot.attempts += 1
            slot.claimed_at = self.now
            slot.until = slot.due = self.now + LEASE
        return may

    @staticmethod
    def holds(slot: ModelSlot | None, generation: int, fence: int, *, removing: bool) -> bool:
        state = "deleting" if removing else "running"
        return slot is not None and (slot.wanted, slot.fence, slot.state) == (generation, fence, state)

    def extend(self, slot: ModelSlot) -> None:
        assert slot.claimed_at is not None
        slot.until = self.now + LEASE
        slot.due = min(slot.until, slot.claimed_at + STALL, slot.claimed_at + DEADLINE)

    def complete(self, owner: ModelOwner, slot: ModelSlot, missing: int) -> None:
        slot.rest("ready")
        slot.built, slot.missing = slot.wanted, missing
        for other in owner.slots.values():
            if other.needs == slot.kind and other.state == "blocked":
                other.state, other.queued_at = "queued", self.now
        self._settle(owner, slot.job)

    def fail(self, owner: ModelOwner, slot: ModelSlot, delay: int | None) -> None:
        if delay is not None:
            slot.state, slot.until = ("deleting" if slot.state == "deleting" else "waiting"), None
            slot.due = self.now + delay
            return
        slot.rest("failed")
        for kind in owner.above({slot.kind}) - {slot.kind}:
            if owner.slots[kind].state == "blocked":
                owner.slots[kind].rest("failed", fenced=True)
        self._settle(owner, slot.job)

    def release(self, slot: ModelSlot, *, refund: bool) -> None:
        if slot.state == "running":
            slot.state = "queued"
            slot.attempts -= refund
        slot.until = None
        slot.due = self.now if slot.state == "deleting" else None

    def forget(self, name: str, kind: str) -> None:
        owner = self.owners[name]
        job = owner.slots.pop(kind).job
        self._settle(owner, job)
        if not owner.slots:
            del self.owners[name]

    def _settle(self, owner: ModelOwner, job: int) -> None:
        own = [slot for slot in owner.slots.values() if slot.job == job]
        if any(slot.state in ACTIVE | {"deleting"} for slot in own):
            return
        if all(slot.complete for slot in own):
            self.outcomes[job] = "success"
        else:
            needed = {slot.needs for slot in own}
            ready = any(slot.state == "ready" for slot in own if slot.kind not in needed)
            self.outcomes[job] = "degraded" if ready else "failed"

    def tend(self) -> None:
        """Give up slots without attempts left and release stalled ones. Other due slots would only be rung."""
        for owner in list(self.owners.values()):
            for slot in list(owner.slots.values()):
                if slot.state not in ("running", "waiting", "deleting") or slot.due is None or slot.due > self.now:
                    continue
                if slot.state == "waiting" and self.pauses:
                    continue
                spent = slot.state != "deleting" and slot.attempts >= ATTEMPTS
                alive = slot.until is not None and slot.until > self.now
                if spent:
                    slot.fence += 1
                    self.fail(owner, slot, None)
                elif (alive and slot.claimed_at is not None and self.now - slot.claimed_at >= STALL) or (
                    not alive and slot.state == "running" and self.pauses
                ):
                    slot.fence += 1
                    self.release(slot, refund=False)
