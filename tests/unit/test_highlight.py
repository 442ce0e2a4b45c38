"""The words of a query are highlighted in a passage, in languages with and without spaces."""

from __future__ import annotations

import pytest

from holdfast.web.highlight import highlight_words

CASES = [
    ("late worker", "A late Worker and two workers.", "A [late] [Worker] and two [workers]."),
    ("the of fox", "The foxes of the sea", "[The] foxes [of] [the] sea"),
    ("API of it", "An API; apis of it", "An [API]; apis of it"),
    ("2024", "in 2024 and 20245", "in [2024] and [20245]"),
    ("a", "a cat", "[a] cat"),
    ("人工智能", "人工智能与工智、智能", "[人工智能]与[工智]、[智能]"),
    ("用Celery", "使用Celery时", "使[用Celery]时"),
    ("码", "编码", "编[码]"),
    ("über", "Überall, darüber", "[Überall], darüber"),
    ("c++ (a|b)*", "c++ or (a|b)*", "[c]++ or ([a]|[b])*"),
    ("", "nothing", "nothing"),
    ("?!", "nothing?!", "nothing?!"),
]


def drawn(text: str, query: str) -> str:
    return "".join(f"[{one.text}]" if one.highlighted else one.text for one in highlight_words(text, query))


@pytest.mark.parametrize(("query", "text", "said"), CASES)
def test_the_words_of_a_query_are_marked(query: str, text: str, said: str) -> None:
    assert drawn(text, query) == said


def test_highlighting_keeps_the_whole_text() -> None:
    text = "worker " * 50
    assert "".join(one.text for one in highlight_words(text, "worker late")) == text
