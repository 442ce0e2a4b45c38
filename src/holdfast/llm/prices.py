"""The price of tokens, from the settings."""

from __future__ import annotations

from dataclasses import dataclass

MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of a model per million tokens, in any currency; None if unknown."""

    input_per_million: float | None = None
    output_per_million: float | None = None

    def cost(self, read: int, written: int) -> float | None:
        """Return the cost of tokens; None if the price is unknown or no tokens were counted."""
        parts = [(read, self.input_per_million), (written, self.output_per_million)]
        used = [(tokens, price) for tokens, price in parts if tokens]
        if not used or any(price is None for _, price in used):
            return None
        return sum(tokens * (price or 0.0) for tokens, price in used) / MILLION
