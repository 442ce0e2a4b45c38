"""The arguments of operations on documents, and the reply for each document."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from holdfast.catalog import ItemKind
from holdfast.engine import DEFAULT_PRIORITY, QUOTA_EXHAUSTED, Status, Verdict

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from contextlib import AbstractContextManager

    from holdfast.blobs import ByteReader
    from holdfast.catalog import OnDuplicate
    from holdfast.engine import AdmissionResult, Fault, JobId, Ticket

SOURCE_SLOT = "source"  # the kind of the slot that reads the source of an item


class Opener(Protocol):
    """Opens a file when it is read. It may raise, also at the end if the file changed in the meantime."""

    def __call__(self) -> AbstractContextManager[ByteReader]: ...


class Upload(NamedTuple):
    """An item to add: its bytes, or the source that they come from."""

    name: str
    content: bytes | ByteReader | Opener | None = None
    metadata: Mapping[str, Any] = {}
    kind: ItemKind = ItemKind.FILE
    source: str | None = None
    seen: str | None = None  # state of the source when the bytes were read
    every: int | None = None  # seconds between two reads of the source
    problem: Fault | None = None  # why it cannot be indexed: it becomes a failed item without slots
    parent: int = 0  # its container; 0: none
    local: bool = False  # the local user named this folder, so HOLDFAST_FOLDER_ROOTS does not apply

    @property
    def location(self) -> tuple[int, str]:
        """Its parent and name, which are unique in a base."""
        return self.parent, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemReply:
    """The reply for one item of a request."""

    verdict: Verdict
    reason: str
    status: Status = Status.NOT_INDEXED
    name: str = ""
    item: int | None = None  # the item that was added, or that conflicts
    job: JobId | None = None
    generation: int | None = None

    @classmethod
    def from_admission(cls, name: str, item: int | None, result: AdmissionResult) -> ItemReply:
        """Return the reply for an item whose request the engine admitted or refused."""
        return cls(
            verdict=result.verdict,
            reason=result.reason,
            status=result.status,
            name=name,
            item=item,
            job=result.job,
            generation=result.generation,
        )

    @property
    def accepted(self) -> bool:
        return self.verdict is Verdict.ACCEPTED

    @property
    def quota_exhausted(self) -> bool:
        return self.reason == QUOTA_EXHAUSTED.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOptions:
    """Options for adding items."""

    on_duplicate: OnDuplicate | None = None  # None: the setting of the base
    refuse_copies: bool = True  # refuse an upload without a source if another item has its content
    index: bool | None = None  # index at once; None: the setting of the base
    requester: str = ""
    priority: int = DEFAULT_PRIORITY
    cause: str = "user"
    ticket: Ticket | None = None  # of the work that adds this; nothing is added if it lost its slot
    restoring: bool = False  # into a base that is being restored


DEFAULT_ADD_OPTIONS = AddOptions()


class Action(StrEnum):
    """The actions on items. The API takes its choices from here, and the page its buttons, in this order."""

    INDEX = "index"  # items that are not indexed
    REINDEX = "reindex"  # build everything again, if nothing is active
    REFRESH = "refresh"  # read the source again
    RETRY = "retry"  # build what failed or is missing; of deleted items, the clean-up
    FORCE = "force"  # build everything, regardless of the status
    CANCEL = "cancel"  # stop active work
    DELETE = "delete"


BUTTONS = tuple(action for action in Action if action is not Action.FORCE)  # `force` is for programs


class RequestOptions(NamedTuple):
    """The requester, priority and cause of a request, and the generations that the item may have."""

    requester: str = ""
    priority: int = DEFAULT_PRIORITY
    cause: str = "user"
    unless_changed: Collection[int] | None = None  # generations; None: any


DEFAULT_REQUEST_OPTIONS = RequestOptions()
