"""States of a slot, and every allowed transition.

Tests compare the SQL constraint, the diagram in `docs/lifecycle.md` and the coverage of the simulation with this
module. The store refuses a transition that is not in `TRANSITIONS` before it commits.
"""

from __future__ import annotations

from enum import StrEnum


class _TextEnum(StrEnum):
    """A `StrEnum` with the hash function of `str`, which is implemented in C and therefore faster."""

    __hash__ = str.__hash__


class SlotState(_TextEnum):
    """State of a slot in its newest generation."""

    BLOCKED = "blocked"  # the slot that it needs is not ready
    QUEUED = "queued"  # may be claimed
    RUNNING = "running"  # claimed, with a lease
    WAITING = "waiting"  # an attempt failed; may be claimed when due
    READY = "ready"  # built: at rest
    FAILED = "failed"  # given up: at rest
    CANCELLED = "cancelled"  # cancelled by a user: at rest
    DELETING = "deleting"  # being removed; the row is deleted last


RESTING_STATES = frozenset({SlotState.READY, SlotState.FAILED, SlotState.CANCELLED})
ACTIVE_STATES = frozenset(SlotState) - RESTING_STATES


class Verb(_TextEnum):
    """What happened to a slot: the name of a transition in the event log."""

    ADMIT = "admitted"  # a request raised `wanted`
    UNBLOCK = "unblocked"  # the slot it needs became ready
    CLAIM = "claimed"  # a worker got a lease
    COMPLETE = "completed"  # a worker built it
    POSTPONE = "postponed"  # an attempt failed and will be repeated
    FAIL = "failed"  # an attempt, or the slot it needs, failed for good
    RELEASE = "released"  # a worker returned it
    EXPIRE = "expired"  # the reconciler ended the lease of a dead or stalled worker
    GIVE_UP = "given_up"  # the reconciler found no attempts left
    CANCEL = "cancelled"  # a user cancelled it
    DELETE = "deleting"  # the owner was deleted, or the slot was dropped
    FORGET = "forgotten"  # a worker cleaned it up; the row is deleted


class Operation(_TextEnum):
    """The operation of a request."""

    INDEX = "index"  # build slots that are not built
    FORCE = "force"  # build all slots
    RETRY = "retry"  # build slots that failed
    REINDEX = "reindex"  # build all slots again, only at rest
    RENEW = "renew"  # build some slots again, only at rest
    CHANGE = "change"  # the content changed
    CANCEL = "cancel"  # stop active work
    DROP = "drop"  # remove some slots, only at rest
    DELETE = "delete"  # remove the owner


class Status(_TextEnum):
    """Status of an owner, as users see it."""

    DELETING = "deleting"
    INDEXING = "indexing"
    QUEUED = "queued"
    SUCCESS = "success"
    DEGRADED = "degraded"
    FAILED = "failed"
    NOT_INDEXED = "not_indexed"


class Outcome(_TextEnum):
    """How a job ended. Every job has exactly one outcome."""

    SUCCESS = "success"
    DEGRADED = "degraded"
    FAILED = "failed"
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"
    DELETED = "deleted"


# None: the slot does not exist.
Transition = tuple[Verb, SlotState | None, SlotState | None]


def _build_transitions() -> frozenset[Transition]:
    s = SlotState
    live = frozenset(SlotState) - {s.DELETING}
    moves: set[Transition] = {(Verb.ADMIT, before, after) for before in live for after in (s.QUEUED, s.BLOCKED)}
    moves |= {(Verb.ADMIT, None, s.QUEUED), (Verb.ADMIT, None, s.BLOCKED)}
    moves |= {(Verb.DELETE, before, s.DELETING) for before in SlotState}  # a dropped slot may be deleted, too
    moves |= {(Verb.CANCEL, before, s.CANCELLED) for before in ACTIVE_STATES - {s.DELETING}}
    moves |= {(Verb.CLAIM, before, s.RUNNING) for before in (s.QUEUED, s.WAITING, s.RUNNING)}
    moves |= {(Verb.GIVE_UP, before, s.FAILED) for before in (s.QUEUED, s.WAITING, s.RUNNING)}
    moves |= {(Verb.RELEASE, s.RUNNING, s.QUEUED), (Verb.EXPIRE, s.RUNNING, s.QUEUED)}
    moves |= {(Verb.RELEASE, same, same) for same in (s.QUEUED, s.BLOCKED, s.DELETING)}
    moves |= {(Verb.EXPIRE, same, same) for same in (s.QUEUED, s.BLOCKED, s.DELETING)}
    moves |= {
        (Verb.UNBLOCK, s.BLOCKED, s.QUEUED),
        (Verb.COMPLETE, s.RUNNING, s.READY),
        (Verb.POSTPONE, s.RUNNING, s.WAITING),
        (Verb.FAIL, s.RUNNING, s.FAILED),
        (Verb.FAIL, s.BLOCKED, s.FAILED),
        (Verb.CLAIM, s.DELETING, s.DELETING),
        (Verb.POSTPONE, s.DELETING, s.DELETING),
        (Verb.FORGET, s.DELETING, None),
    }
    return frozenset(moves)


TRANSITIONS = _build_transitions()


class QuotaScope(StrEnum):
    """For what a quota of guarded work counts separately."""

    WORK = "work"
    KEY = "key"
    REQUESTER = "requester"
    PROJECT = "project"


class QuotaUnit(StrEnum):
    """What a quota of guarded work counts."""

    JOBS = "jobs"
    TOKENS = "tokens"
    PRICE = "price"
