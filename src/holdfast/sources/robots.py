"""What a site asks of programs that read its pages: robots.txt, as RFC 9309 has it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_BYTES = 512 << 10  # what lies behind is not read
MOST_RULES = 10_000
ANY_AGENT = "*"


class RobotsRule(NamedTuple):
    """One line: what it speaks of, how exactly, and whether it allows."""

    length: int
    allows: bool
    match: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Robots:
    """The rules of a site for one program."""

    rules: tuple[RobotsRule, ...] = ()  # the longest first; of two as long, the one that allows

    @classmethod
    def parse(cls, text: str, agent: str) -> Self:
        """Take the rules for this program, or for everybody if it is not named."""
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
        """Tell whether a path with its query may be read; the longest rule that matches decides."""
        return next((rule.allows for rule in self.rules if rule.match.match(target)), True)


def _lines(text: str) -> Iterable[tuple[str, str]]:
    for line in text.removeprefix("\ufeff")[:MOST_BYTES].splitlines():
        key, colon, value = line.partition("#")[0].partition(":")
        if colon:
            yield key.strip().lower(), value.strip()


def _rule(path: str, *, allows: bool) -> list[RobotsRule]:
    """Translate a path; `*` stands for anything, `$` at the end for the end. It never scans back."""
    if not path.startswith(("/", "*")):  # an empty one means nothing
        return []
    ends = path.endswith("$")
    first, *others = (re.escape(piece) for piece in path.removesuffix("$").split("*"))
    if others and ends:
        *middle, last = others
        expression = first + "".join(f"(?>.*?{piece})" for piece in middle) + f".*{last}\\Z"
    else:
        expression = first + "".join(f"(?>.*?{piece})" for piece in others) + ("\\Z" if ends else "")
    return [RobotsRule(len(path), allows, re.compile(expression, re.DOTALL))]
