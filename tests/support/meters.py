"""Meters for tests that call a provider without a ledger."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.llm.base import UnmeteredProvider


@dataclass(slots=True)
class Recorded:
    """One request: its texts, and the cost that was reported for it."""

    model: str
    texts: tuple[str, ...]
    most_out: int
    usage: tuple[int, int] | None = None
    words: str = ""
    unbilled: bool = False
    failed: bool = False
    ended: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.failed, self.ended = kind is not None, True

    def report_tokens(self, tokens_in: int, tokens_out: int) -> None:
        self.usage = tokens_in, tokens_out

    def add_output(self, words: str) -> None:
        self.words += words

    def mark_unbilled(self) -> None:
        self.unbilled = True


@dataclass(slots=True)
class Recorder:
    """A meter that records every request and refuses none."""

    requests: list[Recorded] = field(default_factory=list)

    def __call__(self, model: str, texts: Sequence[str], most_out: int = 0) -> Recorded:
        self.requests.append(Recorded(model, tuple(texts), most_out))
        return self.requests[-1]


class Connected:
    """A provider with a recorder as its meter. Attributes that the metered one lacks come from the raw provider."""

    def __init__(self, raw: UnmeteredProvider) -> None:
        self.raw = raw
        self.recorder = Recorder()
        self.metered = raw.with_meter(self.recorder)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.metered if hasattr(self.metered, name) else self.raw, name)
