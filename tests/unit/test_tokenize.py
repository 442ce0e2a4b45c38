"""Full text finds every visible word in any script, and no query causes a syntax error."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.content.tokenize import MAX_QUERY_TERMS, Term, parse_query_terms, segment_text, split_words

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def index() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(
            "create virtual table texts using fts5(body, tokenize = 'porter unicode61 remove_diacritics 2')"
        )
        yield connection


def match(query: str) -> str:
    return " OR ".join(f'"{term.text}"{"*" if term.prefix else ""}' for term in parse_query_terms(query))


def found(index: sqlite3.Connection, text: str, query: str) -> bool:
    index.execute("delete from texts")
    index.execute("insert into texts values (?)", (segment_text(text),))
    return bool(index.execute("select 1 from texts where texts match ?", (match(query),)).fetchall())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain words stay", "plain words stay"),
        ("Größe, été, Ελλάδα, Москва", "Größe, été, Ελλάδα, Москва"),
        ("", ""),
        ("猫", " 猫 "),
        ("战国无双3", " 战国 国无 无双 双 3"),
        ("use中文here", "use 中文 文 here"),
        ("東京タワー", " 東京 京タ タワ ワー ー "),
        ("한국어 문서", " 한국 국어 어   문서 서 "),
        ("第一。第二", " 第一 一 。 第二 二 "),
    ],
)
def test_text_without_spaces_is_split_into_pairs_of_characters_and_the_last_character(text: str, expected: str) -> None:
    assert segment_text(text) == expected


@pytest.mark.parametrize(
    ("wide", "plain"),
    [
        ("ＦＴＳ５", "FTS5"),  # noqa: RUF001
        ("ｶﾀｶﾅ", "カタカナ"),
        ("か\u3099く", "がく"),
        ("葛\U000e0100城", "葛城"),
        ("\u1112\u1161\u11ab\u1100\u116e\u11a8", "한국"),
        ("⼭川", "山川"),
    ],
)
def test_variants_of_a_character_are_treated_as_the_same_character(wide: str, plain: str) -> None:
    assert segment_text(wide).split() == segment_text(plain).split()
    assert parse_query_terms(wide) == parse_query_terms(plain)
    assert split_words(wide) == split_words(plain)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", []),
        ("?!\"'*()", []),
        ("Who is who", [Term("who"), Term("is")]),
        ("snake_case AND-OR", [Term("snake"), Term("case"), Term("and"), Term("or")]),
        ("所有权", [Term("所有"), Term("有权")]),
        ("猫", [Term("猫", prefix=True)]),
        ("Rust的所有", [Term("rust"), Term("的所"), Term("所有")]),
        ("re\u0301sume\u0301", [Term("re\u0301sume\u0301")]),
    ],
)
def test_a_query_is_split_into_distinct_terms(query: str, expected: list[Term]) -> None:
    assert parse_query_terms(query) == expected


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("黑猫在家", "猫"),
        ("我家有猫", "猫"),
        ("猫", "猫"),
        ("数据库的所有权规则", "所有权"),
        ("ﾃﾞｰﾀﾍﾞｰｽの設計", "データベース"),
        ("ＳＱＬite は小さい", "sqlite"),  # noqa: RUF001
        ("검색엔진을 만든다", "검색엔진"),
        ("the café's résumés", "resume\u0301"),
        ("he was running", "runs"),
        ("版本2的说明", "2"),
    ],
)
def test_a_word_in_a_text_is_found(index: sqlite3.Connection, text: str, query: str) -> None:
    assert found(index, text, query)


@pytest.mark.parametrize(("text", "query"), [("国王和中间", "中国"), ("a cat", "dog"), ("无双", "战国")])
def test_a_word_that_is_not_in_a_text_is_not_found(index: sqlite3.Connection, text: str, query: str) -> None:
    assert not found(index, text, query)


@settings(max_examples=300)
@given(st.text(st.characters(codec=None), max_size=60))
def test_no_query_is_a_syntax_error(query: str) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("create virtual table texts using fts5(body)")
        for term in parse_query_terms(query):
            assert term.text.replace("\u0345", "").strip()
            assert not set(term.text) & set("\"'\0*^:()&|!<>\\ ")
        if parse_query_terms(query):
            connection.execute("select 1 from texts where texts match ?", (match(query),)).fetchall()


@given(st.text(st.sampled_from("中国日本語かなカナ한국 ab1。"), min_size=1, max_size=30), st.data())
def test_every_part_of_a_text_matches_it(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    part = text[start : data.draw(st.integers(start + 1, len(text)))]
    tokens = segment_text(text).split()
    for term in parse_query_terms(part):
        if not term.text.isascii():
            assert any(token.startswith(term.text) if term.prefix else token == term.text for token in tokens)


def test_only_the_first_terms_of_a_very_long_query_are_used(index: sqlite3.Connection) -> None:
    query = " ".join(f"word{number}" for number in range(20_000))
    assert len(parse_query_terms(query)) == MAX_QUERY_TERMS
    assert not found(index, "nothing of it", query)


def test_words_are_split_in_lower_case_with_one_word_per_chinese_character() -> None:
    assert split_words("The Rust Book: 所有权2") == ["the", "rust", "book", "所", "有", "权", "2"]
