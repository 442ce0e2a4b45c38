"""The states of a slot, the verbs that move it, and every move that is allowed.

The SQL constraint, the diagram in `docs/lifecycle.md` and the simulation's coverage are tested against this
module; a move that is not in `TRANSITIONS` is refused before it is written.
"""

from __future__ import annotations

from enum import StrEnum


class _TextEnum(StrEnum):
    """A word of ours. It hashes as the text it equals, which spares every set and table a call into Python."""

    __hash__ = str.__hash__


class SlotState(_TextEnum):
    """Where a slot stands within its newest generation."""

    BLOCKED = "blocked"  # the slot it needs is not ready yet
    QUEUED = "queued"  # may be claimed
    RUNNING = "running"  # claimed; the lease says until when
    WAITING = "waiting"  # failed for now; may be claimed when due
    READY = "ready"  # built: at rest
    FAILED = "failed"  # given up: at rest
    CANCELLED = "cancelled"  # stopped by a person: at rest
    DELETING = "deleting"  # being removed; the row goes last


RESTING_STATES = frozenset({SlotState.READY, SlotState.FAILED, SlotState.CANCELLED})
ACTIVE_STATES = frozenset(SlotState) - RESTING_STATES


class Verb(_TextEnum):
    """What happened to a slot; one verb a transition, so the history reads as sentences."""

    ADMIT = "admitted"  # a request raised `wanted`
    UNBLOCK = "unblocked"  # the slot it needs became ready
    CLAIM = "claimed"  # a worker took it
    COMPLETE = "completed"  # a worker built it
    POSTPONE = "postponed"  # a worker failed for now
    FAIL = "failed"  # a worker failed for good, or what it needs did
    RELEASE = "released"  # a worker gave it back
    EXPIRE = "expired"  # the reconciler took it from a holder that is dead or stalled
    GIVE_UP = "given_up"  # the reconciler counted its last attempt
    CANCEL = "cancelled"  # a person stopped it
    DELETE = "deleting"  # its owner was deleted, or it was dropped from it
    FORGET = "forgotten"  # a worker removed it


class Operation(_TextEnum):
    """What a request asks for."""

    INDEX = "index"  # build what is not built
    FORCE = "force"  # build all of it, built or not
    RETRY = "retry"  # build what failed
    REINDEX = "reindex"  # build all of it again, only from rest
    RENEW = "renew"  # build some of it again, only from rest
    CHANGE = "change"  # the content changed
    CANCEL = "cancel"  # stop what is active
    DROP = "drop"  # remove some of its slots, only from rest
    DELETE = "delete"  # remove it


class Status(_TextEnum):
    """What a person reads on an owner."""

    DELETING = "deleting"
    INDEXING = "indexing"
    QUEUED = "queued"
    SUCCESS = "success"
    DEGRADED = "degraded"
    FAILED = "failed"
    NOT_INDEXED = "not_indexed"


class Outcome(_TextEnum):
    """How a job ended; exactly one each."""

    SUCCESS = "success"
    DEGRADED = "degraded"
    FAILED = "failed"
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"
    DELETED = "deleted"


# None stands for a slot that does not exist.
Transition = tuple[Verb, SlotState | None, SlotState | None]


def _build_transitions() -> frozenset[Transition]:
    s = SlotState
    live = frozenset(SlotState) - {s.DELETING}
    moves: set[Transition] = {(Verb.ADMIT, before, after) for before in live for after in (s.QUEUED, s.BLOCKED)}
    moves |= {(Verb.ADMIT, None, s.QUEUED), (Verb.ADMIT, None, s.BLOCKED)}
    moves |= {(Verb.DELETE, before, s.DELETING) for before in SlotState}  # what is dropped may be deleted, too
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
