"""The rules of a robots.txt file are obeyed."""

from __future__ import annotations

import time

import pytest

from holdfast.sources.robots import Robots

RULES = """\
\ufeff# for everybody
User-agent: *
Disallow: /private/
Allow: /private/open
Disallow: /*.pdf$
Disallow: /same
Allow: /same

User-Agent: Other
User-agent: HOLDFAST
Disallow: /only # for us
Disallow:

User-agent: third
Disallow: /
"""


@pytest.mark.parametrize(
    ("agent", "target", "allowed"),
    [
        ("Nobody", "/", True),
        ("Nobody", "/private/x", False),
        ("Nobody", "/private", True),
        ("Nobody", "/private/open/x", True),
        ("Nobody", "/a/b.pdf", False),
        ("Nobody", "/a/b.pdf?x", True),
        ("Nobody", "/same", True),
        ("Holdfast", "/private/x", True),
        ("Holdfast", "/only/x", False),
        ("Other", "/only", False),
        ("third", "/anything", False),
    ],
)
def test_the_longest_rule_that_matches_decides(agent: str, target: str, allowed: bool) -> None:
    assert Robots.parse(RULES, agent).allows(target) is allowed


@pytest.mark.parametrize(
    "text", ["", "\x00\xff", "Disallow: /", "User-agent: *\nDisallow:", "User-agent *\nDisallow /"]
)
def test_a_file_without_valid_rules_allows_everything(text: str) -> None:
    assert Robots.parse(text, "Holdfast").allows("/anything")


def test_a_rule_with_many_wildcards_is_matched_quickly() -> None:
    robots = Robots.parse("User-agent: *\nDisallow: /" + "*a" * 200 + "$", "Holdfast")
    began = time.process_time()
    assert robots.allows("/" + "a" * 2000 + "b")
    assert time.process_time() - began < 60  # backtracking would take years
