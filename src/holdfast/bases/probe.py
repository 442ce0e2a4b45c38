"""Tests whether the providers of a base answer, with one small call each and a short timeout.

A test ignores the circuit breaker that pauses other work, because it reports the current state. Its cost is on the
ledger of the base, and the budget applies.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError, WorkError
from holdfast.llm import PROBE_PROMPT, PROBE_TEXT
from holdfast.messages import MESSAGE

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.catalog import Base
    from holdfast.indexes import Tools
    from holdfast.llm import MeteredProvider

LEDGER_KIND = "trial"  # the kind of the calls on the ledger
EMBEDDING, CHAT = "embedding", "chat"
OFFLINE, NO_PROVIDER = "offline", "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderTestResult:
    """The result of testing one provider of a base."""

    role: str  # embedding or chat
    provider: str  # the host that was called; offline: this machine; none: no language model
    model: str | None
    ok: bool
    took_ms: float
    message: str  # for people: the problem, and what to do
    code: str | None  # of the error
    params: dict[str, str] = field(default_factory=dict)  # the values in the message of the error


class ProviderTester:
    """Tests the providers of bases; `hosts` has the host of each role."""

    def __init__(self, tools: Tools, hosts: dict[str, str]) -> None:
        self._tools = tools
        self._hosts = hosts

    def run(self, base: Base) -> list[ProviderTestResult]:
        """Call each provider of a base once."""
        return [self._embedding(base), self._chat(base)]

    def _embedding(self, base: Base) -> ProviderTestResult:
        provider = self._tools.embedder_of(base)

        def call() -> None:
            for error in provider.charge_to(base, LEDGER_KIND).embed([PROBE_TEXT]).refused.values():
                raise error

        return self._tried(EMBEDDING, provider, provider.embedding_model, call)

    def _chat(self, base: Base) -> ProviderTestResult:
        provider = self._tools.speaker_of(base)
        if provider.chat_model is None:
            message = "No language model is configured, or the base uses none. Features that need none still work."
            return ProviderTestResult(
                role=CHAT, provider=NO_PROVIDER, model=None, ok=True, took_ms=0.0, message=message, code=None
            )
        return self._tried(
            CHAT, provider, provider.chat_model, lambda: provider.charge_to(base, LEDGER_KIND).complete(PROBE_PROMPT)
        )

    def _tried(
        self, role: str, provider: MeteredProvider, model: str | None, call: Callable[[], object]
    ) -> ProviderTestResult:
        host = self._hosts.get(role, OFFLINE) if provider.paid else OFFLINE
        began = time.perf_counter()
        message, code = (
            "The provider answers." if provider.paid else "This machine computes the embeddings itself.",
            None,
        )
        params: dict[str, str] = {}
        try:
            call()
        except HoldfastError as error:
            message, code = str(error), error.code if isinstance(error, WorkError) else "bad_settings"
            params = {name: value for name, value in error.params.items() if name != MESSAGE}
        return ProviderTestResult(
            role=role,
            provider=host,
            model=model,
            ok=code is None,
            took_ms=round((time.perf_counter() - began) * 1000, 1),
            message=message,
            code=code,
            params=params,
        )
