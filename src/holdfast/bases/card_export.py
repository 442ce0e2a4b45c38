"""Writes study cards as CSV, JSON or Anki text.

The text of a card comes from untrusted documents. A spreadsheet must not run it as a formula, and Anki must not read it
as markup, as a comment or as a sound file.
"""

from __future__ import annotations

import csv
import html
import io
import json
import re
from typing import TYPE_CHECKING

from holdfast.llm import replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.documents import Card

COLUMNS = ("question", "answer", "document", "headings", "passage", "tags")  # cards have no tags; the column is kept
HEADING_SEPARATOR = " > "  # between a document's name and its headings

# Text that a spreadsheet may take for a formula, also with leading apostrophes. So removing one apostrophe from a
# protected cell always restores the text.
_FORMULA = re.compile(r"'*[\s\ufeff\x00-\x20]*[=+\-@\uff1d\uff0b\uff0d\uff20]|'*[\t\r\n]")
_LINE_END = re.compile(r"\r\n|\r|\n")
_ANKI_COMMAND = re.compile(r"\[(?=sound:|anki:|latex\]|/latex\]|/?\$)", re.IGNORECASE)


def to_csv(cards: Iterable[Card]) -> str:
    """Write cards as CSV (RFC 4180) with a header; headings are joined.

    A cell that a spreadsheet could take for a formula gets an apostrophe in front.
    """
    written = io.StringIO(newline="")
    rows = csv.writer(written, quoting=csv.QUOTE_ALL)
    rows.writerow(COLUMNS)
    for card in cards:
        headings = HEADING_SEPARATOR.join(card.headings)
        cells = (card.question, card.answer, card.name, headings, card.passage, "")
        rows.writerow(_harmless(replace_surrogates(cell)) for cell in cells)
    return written.getvalue()


def to_json(cards: Iterable[Card]) -> str:
    """Write cards as a JSON list of objects, with their texts unchanged."""
    objects = [
        {
            "question": card.question,
            "answer": card.answer,
            "document": card.name,
            "headings": card.headings,
            "passage": card.passage,
            "tags": [],
        }
        for card in cards
    ]
    return replace_surrogates(json.dumps(objects, ensure_ascii=False, indent=1)) + "\n"


def to_anki(cards: Iterable[Card]) -> str:
    """Write cards as text that Anki 2.1.54 and later imports: the front, the back with its source, and no tags.

    Columns have no names, because Anki would look for these among the fields of the note type, and their names depend
    on the user's language. Anki identifies a note by its front, so of cards with the same question it keeps the last.
    """
    lines = ["#separator:tab", "#html:true", "#tags column:3"]
    for card in cards:
        source = HEADING_SEPARATOR.join((card.name, *card.headings))
        back = f"{_markup(card.answer)}<br><br><small>{_markup(source)}</small>"
        lines.append(f"{_markup(card.question)}\t{back}\t")
    return "\n".join(lines) + "\n"


def _harmless(value: str) -> str:
    return f"'{value}" if _FORMULA.match(value) else value


def _markup(text: str) -> str:
    """Escape a text as HTML on one line, so that Anki shows it unchanged and it needs no quotes."""
    escaped = _ANKI_COMMAND.sub("&#91;", html.escape(replace_surrogates(text)))
    escaped = _LINE_END.sub("<br>", escaped).replace("\t", "&#9;").replace("\0", "")
    return f"&#35;{escaped[1:]}" if escaped.startswith("#") else escaped
