"""The prompt asks for a suitable number of question-and-answer pairs, and only valid pairs are kept."""
# ruff: noqa: RUF001  (question marks of other languages are intended)

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.bases.cards import CardCandidate
from holdfast.indexes.questions import prompt as questions
from holdfast.indexes.questions.prompt import (
    QuestionPair,
    build_prompt,
    count_wanted_pairs,
    from_json,
    is_question,
    parse_answer,
    remove_duplicate_questions,
    supports,
    to_json,
)
from holdfast.llm.structured_call import build_recipe_name

TEXT = (
    "The Analytical Engine was designed by Charles Babbage in 1837. Its store held one thousand numbers of fifty "
    "digits, and its mill did the arithmetic. Ada Lovelace wrote notes on it."
)
WHO = QuestionPair(question="Who designed the Analytical Engine?", answer="Charles Babbage designed it in 1837.")
STORE = QuestionPair(question="How many numbers did the store hold?", answer="One thousand numbers of fifty digits.")


def said(*pairs: QuestionPair) -> str:
    return json.dumps({"pairs": [{"question": one.question, "answer": one.answer} for one in pairs]})


def pair(question: str, answer: str = "Charles Babbage") -> QuestionPair:
    return QuestionPair(question=question, answer=answer)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("A title", 0),
        (TEXT, 1),
        (TEXT * 4, 2),
        (TEXT * 12, 5),
        (TEXT * 100, questions.MAX_PAIRS),
        ("分析机由查尔斯·巴贝奇设计。它能存储一千个数。", 1),
    ],
)
def test_longer_texts_get_more_pairs(text: str, count: int) -> None:
    assert count_wanted_pairs(text) == count


def test_the_prompt_asks_for_that_many_and_encloses_the_text() -> None:
    prompt = build_prompt(TEXT * 12, ("Engines",))
    assert "at most 5 cards" in prompt.text
    assert f"{TEXT * 12}\n</text" in prompt.text
    assert "Engines\n</headings" in prompt.text
    assert prompt.schema == questions.SCHEMA


def test_good_pairs_are_read() -> None:
    assert parse_answer(said(WHO, STORE), TEXT * 12) == (WHO, STORE)
    assert parse_answer(said(), TEXT) == ()


def test_no_more_pairs_than_wanted_are_kept() -> None:
    many = [pair(f"Who designed engine number {number}?") for number in range(50)]
    assert parse_answer(said(*many), TEXT) == (many[0],)
    assert len(parse_answer(said(*many), TEXT * 100)) == questions.MAX_PAIRS


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("Who?", "not JSON"),
        ("{}", '"pairs" is not a list'),
        ('{"pairs": [1]}', "list of objects"),
        ('{"pairs": [{"question": "Who?"}]}', '"answer" is not a string'),
        ('{"pairs": [{"question": null, "answer": "x"}]}', '"question" is not a string'),
        (said(pair("Name the designer."), pair("Explain the mill.")), "no question ends with"),
    ],
)
def test_the_error_for_an_invalid_answer_names_the_flaw(answer: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_answer(answer, TEXT)


@pytest.mark.parametrize(
    "bad",
    [
        pair("Name the designer."),
        pair("???"),
        pair("Who?", ""),
        pair("Who?", " \n"),
        pair("Who invented the telephone?", "Alexander Graham Bell patented it."),
        pair("Was it large?", "Yes."),
        pair("Wer entwarf sie?", "Ein berühmter englischer Mathematiker."),
    ],
)
def test_a_bad_pair_is_dropped_and_a_good_one_stays(bad: QuestionPair) -> None:
    assert parse_answer(said(bad, WHO), TEXT * 12) == (WHO,)


def test_pairs_are_bounded() -> None:
    long = pair("Who " + "really " * 100 + "did it?", "Charles Babbage " * 200)
    with pytest.raises(ValueError, match="question mark"):
        parse_answer(said(long), TEXT)  # after the cut it does not end with a question mark
    (kept,) = parse_answer(said(pair("Who?", long.answer)), TEXT)
    assert len(kept.answer) <= questions.ANSWER_LIMIT


@pytest.mark.parametrize(
    "question",
    [
        "Who designed it?",
        'Who said "it works?"',
        "¿Quién la diseñó?",
        "谁设计了分析机？",
        "分析机是巴贝奇设计的吗",
        "誰が設計しましたか。",
        "من صمم المحرك؟",
        "Ποιος το σχεδίασε;",
        "Ποιος το σχεδίασε\u037e",
        "ใครเป็นผู้ออกแบบ",
        "Ո՞վ է",
        "What is it?  ",
    ],
)
def test_questions_of_many_languages_are_recognised(question: str) -> None:
    assert is_question(question)


@pytest.mark.parametrize("question", ["", "?", "It works.", "Tell me; now;", "设计了分析机。", "Is it? No."])
def test_other_sentences_are_not_recognised_as_questions(question: str) -> None:
    assert not is_question(question)


CHINESE = "分析机由查尔斯·巴贝奇于一八三七年设计，能够存储一千个五十位的数字。"


@pytest.mark.parametrize(
    ("text", "answer", "supported"),
    [
        (TEXT, "Charles Babbage.", True),
        (TEXT, "Designing", True),  # an inflected form of the same word
        (TEXT, "It was by the moon", False),  # stop words do not support an answer
        (TEXT, "1837", True),
        (TEXT, "1838", False),
        (TEXT, "The moon is made of cheese.", False),
        (CHINESE, "查尔斯·巴贝奇", True),
        (CHINESE, "一千个数字", True),
        (CHINESE, "爱迪生发明了电灯", False),
        (TEXT, "", False),
        (TEXT, "…", False),
        ("Ja oder nein? Ja.", "Ja", True),
    ],
)
def test_an_answer_is_supported_only_by_words_of_the_text(text: str, answer: str, supported: bool) -> None:
    assert supports(text, answer) is supported


def test_a_repeated_question_is_dropped_and_the_order_is_kept() -> None:
    again = pair("  who designed the ANALYTICAL engine ?")
    assert remove_duplicate_questions([STORE, WHO, again]) == (STORE, WHO)
    assert remove_duplicate_questions([pair("谁？"), pair("谁?"), pair("谁")]) == (pair("谁？"),)


def test_repeated_questions_of_several_chunks_are_dropped_too() -> None:
    one, other = (CardCandidate(place, asked) for place, asked in enumerate(("Who?", "WHO ?")))
    assert remove_duplicate_questions([one, other]) == (one,)


@given(st.lists(st.builds(QuestionPair, question=st.text(max_size=9), answer=st.text(max_size=9))))
def test_removing_duplicates_is_idempotent_and_keeps_the_order(pairs: list[QuestionPair]) -> None:
    once = remove_duplicate_questions(pairs)
    assert remove_duplicate_questions([*once, *pairs]) == once
    places = [pairs.index(one) for one in once]
    assert places == sorted(places)


@given(st.lists(st.builds(QuestionPair, question=st.text(max_size=9), answer=st.text(max_size=9))))
def test_stored_pairs_are_read_back_unchanged(pairs: list[QuestionPair]) -> None:
    assert from_json(to_json(pairs)) == tuple(pairs)


def test_the_recipe_depends_on_the_number_of_requested_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = ("text", ()), ("text " * 2000, ("heading",))
    assert build_recipe_name("questions", *(build_prompt(*one) for one in samples)) == questions.RECIPE
    monkeypatch.setattr(questions, "MAX_PAIRS", 9)
    assert build_recipe_name("questions", *(build_prompt(*one) for one in samples)) != questions.RECIPE
