"""The result of a search: hits, and notices about channels that could not be searched."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.catalog import ServedPassage
from holdfast.search.fusion import ChannelScore  # noqa: TC001 - schemas are made from the annotations

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.errors import WorkError


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit(ServedPassage):
    """A passage found by a search."""

    rank: int
    score: float
    title: str | None  # of the document
    channels: dict[str, ChannelScore]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A channel that could not be searched, or only in part, and the reason."""

    channel: str
    code: str
    message: str
    params: dict[str, str] = field(default_factory=dict)


class Hits(list[Hit]):
    """Hits, best first; `notices` lists the channels that could not be searched."""

    def __init__(self, hits: Iterable[Hit] = (), notices: Iterable[Notice] = ()) -> None:
        super().__init__(hits)
        self.notices = list(notices)


def to_notice(channel: str, error: WorkError) -> Notice:
    params = {name: value for name, value in error.params.items() if name != "message"}
    return Notice(channel=channel, code=error.code, message=str(error), params=params)
