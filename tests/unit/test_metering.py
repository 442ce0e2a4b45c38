"""Every call of a paid provider goes through the ledger."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import holdfast
from holdfast.catalog.repository import Base, BaseSettings
from holdfast.llm.base import Provider
from holdfast.llm.metering import MeteredProvider, split_tokens
from holdfast.llm.openai import Endpoint, OpenAIProvider

SOURCE = Path(holdfast.__file__).parent
CALLS = ("embed", "embed_parts", "complete", "stream")


def places(pattern: str) -> set[str]:
    """Return the modules in which a pattern occurs."""
    found = re.compile(pattern)
    return {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if found.search(path.read_text())}


def test_a_provider_has_no_paid_calls_without_a_meter() -> None:
    provider = OpenAIProvider(Endpoint(embedding_model="embedder", chat_model="speaker"))
    for one in (provider, MeteredProvider(provider, None)):  # type: ignore[arg-type]
        assert not [name for name in CALLS if hasattr(one, name)]
    assert all(hasattr(Provider, name) for name in CALLS)


def test_only_the_metering_module_and_the_circuit_breaker_attach_a_meter() -> None:
    assert places(r"\.with_meter\(") == {"llm/metering.py", "llm/circuit_breaker.py"}
    assert places(r"\bOpenAIProvider\(") == {"wiring.py"}


def test_a_paid_call_without_a_base_is_refused() -> None:
    provider = OpenAIProvider(Endpoint(embedding_model="embedder"))
    with pytest.raises(ValueError, match="needs a base"):
        MeteredProvider(provider, None).charge_to(None, "query")  # type: ignore[arg-type]
    base = Base(id=1, name="shelf", settings=BaseSettings())
    assert MeteredProvider(provider, None).charge_to(base, "query").embedding_model == "embedder"  # type: ignore[arg-type]


@pytest.mark.parametrize(("tokens", "sizes"), [(10, [1, 1, 1]), (1, [5, 5]), (0, [3]), (7, [0, 0]), (1000, [1, 999])])
def test_shares_add_up_to_the_whole(tokens: int, sizes: list[int]) -> None:
    found = split_tokens(tokens, sizes)
    assert len(found) == len(sizes)
    assert sum(found) == tokens
