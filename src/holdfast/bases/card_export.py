"""Study cards as files: for spreadsheets, for programs, and for Anki.

The text of a card comes from documents of strangers. A spreadsheet must not take it for a formula, nor Anki for
markup, a comment or a file of sound.
"""

from __future__ import annotations

import csv
import html
import io
import json
import re
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING

from holdfast.llm import replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Iterable

HEADING_SEPARATOR = " > "  # between a document and its headings, as people read it

# What a spreadsheet may take for a formula. Apostrophes before it are counted in, so that what was protected can be
# told from what began so: whoever takes one apostrophe away has the text again.
_FORMULA = re.compile(r"'*[\s\ufeff\x00-\x20]*[=+\-@\uff1d\uff0b\uff0d\uff20]|'*[\t\r\n]")
_NO_TAG = re.compile(r"[\s\"]+")
_LINE_END = re.compile(r"\r\n|\r|\n")
_ANKI_COMMAND = re.compile(r"\[(?=sound:|anki:|latex\]|/latex\]|/?\$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRow:
    """A card as files have it: a question with its answer, and where it comes from."""

    question: str
    answer: str
    document: str
    headings: tuple[str, ...] = ()
    passage: str = ""
    tags: tuple[str, ...] = ()


def to_csv(cards: Iterable[CardRow]) -> str:
    """Write cards as RFC 4180 has it, with a header; headings are joined, tags have no spaces.

    A field that a spreadsheet could compute begins with an apostrophe more than its text.
    """
    written = io.StringIO(newline="")
    rows = csv.writer(written, quoting=csv.QUOTE_ALL)
    rows.writerow(field.name for field in fields(CardRow))
    for card in cards:
        flat = (HEADING_SEPARATOR.join(card.headings), card.passage, " ".join(_tags(card)))
        rows.writerow(
            _harmless(replace_surrogates(value)) for value in (card.question, card.answer, card.document, *flat)
        )
    return written.getvalue()


def to_json(cards: Iterable[CardRow]) -> str:
    """Write cards as a JSON list of objects, nothing changed."""
    return replace_surrogates(json.dumps([asdict(card) for card in cards], ensure_ascii=False, indent=1)) + "\n"


def to_anki(cards: Iterable[CardRow], *, tags: Iterable[str] = ()) -> str:
    """Write cards as text that Anki 2.1.54 and later imports: front, back with its source, tags; these tags for all.

    Columns are not named: Anki would look for their names among the fields of the note, which people have in their
    own language. It knows a note by its front, so of cards that ask the same only the last would remain.
    """
    shared = tuple(tags)
    lines = ["#separator:tab", "#html:true", "#tags column:3"]
    for card in cards:
        source = HEADING_SEPARATOR.join((card.document, *card.headings))
        back = f"{_markup(card.answer)}<br><br><small>{_markup(source)}</small>"
        every = replace(card, tags=(*shared, *card.tags))
        lines.append("\t".join((_markup(card.question), back, " ".join(_tags(every)))))
    return "\n".join(lines) + "\n"


def _harmless(value: str) -> str:
    return f"'{value}" if _FORMULA.match(value) else value


def _markup(text: str) -> str:
    """Write a text as HTML on one line, so that it needs no quotes and shows exactly what it says."""
    escaped = _ANKI_COMMAND.sub("&#91;", html.escape(replace_surrogates(text)))
    escaped = _LINE_END.sub("<br>", escaped).replace("\t", "&#9;").replace("\0", "")
    return f"&#35;{escaped[1:]}" if escaped.startswith("#") else escaped


def _tags(card: CardRow) -> list[str]:
    """Return the tags of a card, each once, as words."""
    words = (_NO_TAG.sub("_", replace_surrogates(tag).strip()).strip("_") for tag in card.tags)
    return list(dict.fromkeys(word for word in words if word))
