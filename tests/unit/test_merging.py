"""Several descriptions are merged into one, with a model only when needed and again only when the texts change."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.content.token_estimate import estimate_tokens
from holdfast.indexes.graph import merge_prompt as merging
from holdfast.indexes.graph.merge_prompt import (
    SubjectText,
    build_prompt,
    digest,
    distinct_texts,
    join_texts,
    needs_model,
    parse_answer,
)
from holdfast.llm.structured_call import build_recipe_name

sayings = st.lists(
    st.builds(SubjectText, document=st.sampled_from(["a", "b", "c"]), text=st.text("abc X.", max_size=12)), max_size=8
)


def say(*said: tuple[str, str]) -> list[SubjectText]:
    return [SubjectText(document=document, text=text) for document, text in said]


def many(count: int) -> list[SubjectText]:
    return say(*((f"d{number % 3}", f"Fact number {number} about Ada.") for number in range(count)))


def test_few_texts_are_joined_without_a_model_and_without_repetition() -> None:
    said = say(
        ("a", "Ada wrote notes."), ("b", "ada  wrote notes."), ("b", "Wrote notes"), ("b", "Born 1815."), ("c", " ")
    )
    assert not needs_model(distinct_texts(said))
    assert join_texts(distinct_texts(said)) == "Ada wrote notes.\nBorn 1815."


def test_each_document_contributes_one_text_before_any_contributes_a_second() -> None:
    said = say(("a", "first of a"), ("a", "second a"), ("b", "of b"), ("c", "of c"))
    assert distinct_texts(said) == ("first of a", "of b", "of c", "second a")


@given(sayings, st.randoms(use_true_random=False))
def test_neither_order_nor_repetition_makes_a_difference(said: list[SubjectText], random: Any) -> None:
    shuffled = [*said, *said[:2]]
    random.shuffle(shuffled)
    assert distinct_texts(shuffled) == distinct_texts(said)
    assert digest("Ada", distinct_texts(shuffled)) == digest("Ada", distinct_texts(said))
    assert build_prompt("Ada", distinct_texts(shuffled)) == build_prompt("Ada", distinct_texts(said))
    assert needs_model(distinct_texts(shuffled)) == needs_model(distinct_texts(said))


def test_thousands_of_texts_are_deduplicated() -> None:
    assert len(distinct_texts(many(3000) + many(3000))) == 3000


def test_a_model_is_needed_above_a_number_of_texts_or_a_length() -> None:
    assert not needs_model(distinct_texts(many(merging.MAX_JOINED_TEXTS)))
    assert needs_model(distinct_texts(many(merging.MAX_JOINED_TEXTS + 1)))
    assert needs_model(["word " * 400])
    assert not needs_model(distinct_texts(say(*((f"d{number}", "Always the same.") for number in range(100)))))


def test_joined_descriptions_are_bounded() -> None:
    assert join_texts(["x" * 1000, "y" * 1000]) == "x" * 1000  # no word is cut
    assert len(join_texts(["x" * 5000])) == merging.DESCRIPTION_LIMIT


def test_the_digest_depends_on_texts_and_subject_but_not_on_the_documents() -> None:
    known = digest("Ada", distinct_texts(many(9)))
    assert digest("Ada", distinct_texts(many(10))) != known
    assert digest("Bob", distinct_texts(many(9))) != known
    assert digest("Ada", distinct_texts(many(8))) != known
    elsewhere = [SubjectText(document="other", text=one.text) for one in many(9)]
    assert digest("Ada", distinct_texts(elsewhere)) == known


def test_the_prompt_is_bounded_and_texts_beyond_the_bound_do_not_change_the_digest() -> None:
    said = [f"Fact {number} " + "word " * 100 for number in range(100)]
    prompt = build_prompt("Ada", said)
    assert merging.MAX_PROMPT_TOKENS * 0.9 < estimate_tokens(prompt.text) < merging.MAX_PROMPT_TOKENS + 200
    assert digest("Ada", said) == digest("Ada", [*said, "One more."])


def test_the_prompt_encloses_subject_and_texts_in_delimiters() -> None:
    prompt = build_prompt("Ada", ["Wrote notes.</passages>", "Born 1815."])
    mark = prompt.text.split("<subject ")[1].split(">")[0]
    assert prompt.text.startswith(f"<subject {mark}>\nAda\n</subject {mark}>\n<passages {mark}>\n- Born 1815.\n- Wrote")
    assert prompt.schema == merging.SCHEMA


def test_an_answer_is_read_and_bounded() -> None:
    assert parse_answer('{"description": " Ada  wrote. "}') == "Ada wrote."
    assert len(parse_answer(json.dumps({"description": "x" * 9000}))) == merging.DESCRIPTION_LIMIT


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("no", "not JSON"),
        ("{}", "not a string"),
        ('{"description": " \\n"}', "is empty"),
        ('{"description": ["x"]}', "not a string"),
    ],
)
def test_the_error_for_an_answer_without_a_description_names_the_flaw(answer: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_answer(answer)


def test_the_recipe_is_derived_from_the_prompt() -> None:
    assert build_recipe_name("merging", build_prompt("subject", ("one", "other"))) == merging.RECIPE
    assert build_recipe_name("merging", build_prompt("subject", ("one",))) != merging.RECIPE
