"""Parses robots.txt (RFC 9309)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_BYTES = 512 << 10  # the rest is not read
MOST_RULES = 10_000
ANY_AGENT = "*"


class RobotsRule(NamedTuple):
    length: int  # of the path; the longest matching rule decides
    allows: bool
    match: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Robots:
    r"""The rules of a site for one user agent.

    Example: `Robots.parse("User-agent: *\nDisallow: /private/", "Holdfast").allows("/private/a") is False`
    """

    rules: tuple[RobotsRule, ...] = ()  # the longest first; of equal length, those that allow first

    @classmethod
    def parse(cls, text: str, agent: str) -> Self:
        """Return the rules for this user agent, or those for `*` if it is not named."""
        groups: dict[str, list[RobotsRule]] = {}
        named: list[str] = []
        reading_names = False
        for key, value in _lines(text):
            if key == "user-agent":
                named = [*named, value.lower()] if reading_names else [value.lower()]
                reading_names = True
                groups.setdefault(value.lower(), [])
            elif key in {"allow", "disallow"}:
                reading_names = False
                for name in named:
                    groups[name] += _rule(value, allows=key == "allow")
        rules = groups.get(agent.lower(), groups.get(ANY_AGENT, []))
        return cls(tuple(sorted(rules[:MOST_RULES], key=lambda rule: (-rule.length, not rule.allows))))

    def allows(self, target: str) -> bool:
        """Return whether a path with its query may be fetched."""
        return next((rule.allows for rule in self.rules if rule.match.match(target)), True)


def _lines(text: str) -> Iterable[tuple[str, str]]:
    for line in text.removeprefix("\ufeff")[:MOST_BYTES].splitlines():
        key, colon, value = line.partition("#")[0].partition(":")
        if colon:
            yield key.strip().lower(), value.strip()


def _rule(path: str, *, allows: bool) -> list[RobotsRule]:
    """Translate a path with `*` and a final `$` to a regular expression without backtracking."""
    if not path.startswith(("/", "*")):  # an empty path has no effect
        return []
    ends = path.endswith("$")
    first, *others = (re.escape(piece) for piece in path.removesuffix("$").split("*"))
    if others and ends:
        *middle, last = others
        expression = first + "".join(f"(?>.*?{piece})" for piece in middle) + f".*{last}\\Z"
    else:
        expression = first + "".join(f"(?>.*?{piece})" for piece in others) + ("\\Z" if ends else "")
    return [RobotsRule(len(path), allows, re.compile(expression, re.DOTALL))]
