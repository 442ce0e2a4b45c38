"""The kinds of violations that the checks find."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    LOST = "lost"  # acknowledged content, an event or a message is missing
    STALE = "stale"  # old content is served, or a read goes back
    DUPLICATED = "duplicated"  # something exists or was accepted twice
    RESURRECTED = "resurrected"  # something is seen that was deleted or never accepted
    LEFTOVER = "leftover"  # a store contains what no document needs, or lacks what one needs
    STUCK = "stuck"  # work does not come to rest, or has no outcome
    OVERPAID = "overpaid"  # a text was paid again without a reason
    FORGED = "forged"  # a webhook message without a valid signature


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One thing that the product must not do, and where it shows."""

    kind: Kind
    text: str
    key: str = ""  # of the document
    operations: tuple[int, ...] = ()
