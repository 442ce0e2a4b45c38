"""Whether the providers of a base answer: each is asked something harmless, at once and with little patience.

A pause that other work observes is not minded: whoever tries wants to know how it is now. What it costs is on the
ledger of the base, and its budget holds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError, WorkError
from holdfast.llm import PROBE_TEXT
from holdfast.llm.circuit_breaker import PROBE_PROMPT

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.catalog import Base
    from holdfast.indexes import Tools
    from holdfast.llm import MeteredProvider

LEDGER_KIND = "trial"  # on the ledger
EMBEDDING, CHAT = "embedding", "chat"
OFFLINE, NO_PROVIDER = "offline", "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderTestResult:
    """What came of asking a provider of a base something harmless."""

    role: str  # embedding or chat
    provider: str  # the host that was asked; offline: this machine; none: there is no language model
    model: str | None
    ok: bool
    took_ms: float
    message: str  # what is wrong, and what to do
    code: str | None  # of the error


class ProviderTester:
    """Tries the providers that `tools` have; `hosts` says where each role is asked."""

    def __init__(self, tools: Tools, hosts: dict[str, str]) -> None:
        self._tools = tools
        self._hosts = hosts

    def run(self, base: Base) -> list[ProviderTestResult]:
        """Ask each provider of a base once."""
        return [self._embedding(base), self._chat(base)]

    def _embedding(self, base: Base) -> ProviderTestResult:
        provider = self._tools.embedder_of(base)

        def ask() -> None:
            for why in provider.charge_to(base, LEDGER_KIND).embed([PROBE_TEXT]).refused.values():
                raise why

        return self._tried(EMBEDDING, provider, provider.embedding_model, ask)

    def _chat(self, base: Base) -> ProviderTestResult:
        provider = self._tools.speaker_of(base)
        if provider.chat_model is None:
            said = "No language model is set, or the base may not ask one; whatever needs none works without."
            return ProviderTestResult(
                role=CHAT, provider=NO_PROVIDER, model=None, ok=True, took_ms=0.0, message=said, code=None
            )
        return self._tried(
            CHAT, provider, provider.chat_model, lambda: provider.charge_to(base, LEDGER_KIND).complete(PROBE_PROMPT)
        )

    def _tried(
        self, role: str, provider: MeteredProvider, model: str | None, ask: Callable[[], object]
    ) -> ProviderTestResult:
        host = self._hosts.get(role, OFFLINE) if provider.paid else OFFLINE
        began = time.perf_counter()
        problem: HoldfastError | None = None
        try:
            ask()
        except HoldfastError as error:
            problem = error
        took = round((time.perf_counter() - began) * 1000, 1)
        if problem is None:
            said = "It answers." if provider.paid else "This machine embeds by itself; nobody is asked."
            return ProviderTestResult(
                role=role, provider=host, model=model, ok=True, took_ms=took, message=said, code=None
            )
        code = problem.code if isinstance(problem, WorkError) else "bad_settings"
        return ProviderTestResult(
            role=role, provider=host, model=model, ok=False, took_ms=took, message=str(problem), code=code
        )
