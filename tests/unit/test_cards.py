"""An export of cards contains exactly the cards, and no text in it is executed as a formula or as markup."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.bases.card_export import COLUMNS, to_anki, to_csv, to_json
from holdfast.documents.details import Card

if TYPE_CHECKING:
    from collections.abc import Sequence


def make_card(question: str, answer: str = "", name: str = "", headings: Sequence[str] = (), passage: str = "") -> Card:
    return Card(
        place=1,
        question=question,
        answer=answer,
        document=1,
        name=name,
        chunk=1,
        headings=list(headings),
        passage=passage,
    )


CARD = make_card(
    "Who designed it?", "Charles Babbage", "Engines.md", ("History", "1837"), "It was designed by Charles Babbage."
)
# Ordinary characters, and all characters that are special in one of the formats.
nasty = st.text(
    st.sampled_from("ab =+-@'\"\t\r\n,;#<>&[]\ufeff\0") | st.characters(exclude_categories=["Cs"]), max_size=12
)
cards = st.builds(make_card, nasty, nasty, nasty, st.lists(nasty, max_size=2), nasty)


def rows(written: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(written, newline="")))


def plain(cell: str) -> str:
    """Remove the apostrophe that protects a cell, as the documentation describes."""
    return cell[1:] if re.match(r"'+[\s\ufeff\x00-\x20]*[=+\-@＝＋－＠]|'+[\t\r\n]", cell) else cell  # noqa: RUF001


def imported(written: str) -> list[tuple[str, str, list[str]]]:
    """Parse a text file as Anki does: headers, comments, tabs, quotes, HTML, and tags separated by spaces."""
    lines = written.split("\n")
    headers = dict(line[1:].split(":", 1) for line in lines if line.startswith("#"))
    assert headers == {"separator": "tab", "html": "true", "tags column": "3"}
    body = "\n".join(line for line in lines if not line.startswith("#"))
    found = []
    for front, back, tags in csv.reader(io.StringIO(body, newline=""), delimiter="\t"):
        found.append((shown(front), shown(back.split("<br><br><small>")[0]), tags.split()))
    return found


def shown(field: str) -> str:
    assert not re.search(r"\[(sound|anki):", field)
    text = field.replace("<br>", "\n")
    assert "<" not in text
    return html.unescape(text)


def as_lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")


def test_a_spreadsheet_gets_a_header_and_a_row_for_each_card() -> None:
    assert to_csv([CARD]) == (
        '"question","answer","document","headings","passage","tags"\r\n'
        '"Who designed it?","Charles Babbage","Engines.md","History > 1837",'
        '"It was designed by Charles Babbage.",""\r\n'
    )
    assert rows(to_csv([])) == []


@given(st.lists(cards, max_size=4))
def test_csv_round_trips_every_card(many: list[Card]) -> None:
    found = rows(to_csv(many))
    assert [(plain(row["question"]), plain(row["answer"]), plain(row["document"])) for row in found] == [
        (card.question, card.answer, card.name) for card in many
    ]
    assert [plain(row["passage"]) for row in found] == [card.passage for card in many]
    assert [plain(row["headings"]) for row in found] == [" > ".join(card.headings) for card in many]


@pytest.mark.parametrize(
    "formula",
    [
        '=HYPERLINK("http://x","y")',
        "+1",
        "-1+cmd|' /C calc'!A0",
        "@SUM(A1)",
        " =1",
        "\t=1",
        "\r=1",
        "\n@x",
        "\ufeff=1",
        "＝1",  # noqa: RUF001
        "\tx",
    ],
)
def test_no_cell_begins_as_a_formula(formula: str) -> None:
    (row,) = rows(to_csv([make_card(formula, formula, formula, (formula,), formula)]))
    assert all(cell.startswith("'") for name, cell in row.items() if name != "tags")


@given(nasty)
def test_no_text_makes_a_cell_begin_with_a_formula_character(text: str) -> None:
    (row,) = rows(to_csv([make_card(text)]))
    assert row["question"].lstrip("\ufeff \t\r\n\0")[:1] not in tuple("=+-@")


def test_an_apostrophe_in_the_text_is_kept_apart_from_the_protecting_one() -> None:
    cells = [row["question"] for row in rows(to_csv(make_card(q) for q in ("=1", "'=1", "'x")))]
    assert cells == ["'=1", "''=1", "'x"]


@given(st.lists(cards, max_size=4))
def test_json_round_trips_every_card(many: list[Card]) -> None:
    assert json.loads(to_json(many)) == [
        {
            "question": card.question,
            "answer": card.answer,
            "document": card.name,
            "headings": card.headings,
            "passage": card.passage,
            "tags": [],
        }
        for card in many
    ]


def test_anki_gets_three_headers_and_a_line_for_each_card() -> None:
    assert to_anki([CARD]) == (
        "#separator:tab\n#html:true\n#tags column:3\n"
        "Who designed it?\tCharles Babbage<br><br><small>Engines.md &gt; History &gt; 1837</small>\t\n"
    )


@given(st.lists(cards, max_size=4))
def test_anki_imports_exactly_the_cards(many: list[Card]) -> None:
    written = to_anki(many)
    assert written.count("\n") == 3 + len(many)
    assert '"' not in written
    assert [(front, back) for front, back, _ in imported(written)] == [
        (as_lines(card.question), as_lines(card.answer)) for card in many
    ]


@pytest.mark.parametrize(
    "text",
    [
        "# not a comment",
        "#html:false",
        "tags:x",
        '"quoted"',
        "two\nlines",
        "a\tb",
        "<b>bold</b> & <script>alert(1)</script>",
        "&lt; already",
        "[sound:evil.mp3]",
        "[latex]x[/latex] [$]y[/$]",
        "{{c1::no gap}}",
        "C:\\n\\t",
    ],
)
def test_anki_interprets_no_text_as_markup_or_as_a_header(text: str) -> None:
    written = to_anki([make_card(text, text, text)])
    ((front, back, tags),) = imported(written)
    assert (front, back, tags) == (text, text, [])
    assert not re.search(r"\[(sound:|latex\]|/latex\]|/?\$)", written)


def test_lone_surrogates_do_not_stop_an_export() -> None:
    card = make_card("\ud800?", "\udfff")
    for written in (to_csv([card]), to_json([card]), to_anki([card])):
        written.encode()


def test_every_field_of_a_card_has_its_column() -> None:
    (row,) = rows(to_csv([CARD]))
    assert list(row) == list(COLUMNS)
