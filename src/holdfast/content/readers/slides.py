"""PowerPoint files that kreuzberg refuses for a broken picture: the words are there, so they are read.

Only tried after kreuzberg. The container was looked through before, so its XML is small and declares no entities.
"""

from __future__ import annotations

import re
import zipfile
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from holdfast.content import refusals
from holdfast.content.readers.base import Reading
from holdfast.content.readers.cleaning import clean, has_words
from holdfast.content.readers.kinds import PPTX

if TYPE_CHECKING:
    from pathlib import Path

SLIDE = re.compile(r"ppt/slides/slide(\d+)\.xml")
DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"


class SlideReader:
    """Reads the words of slides, and nothing else of them."""

    def read(self, path: Path, name: str) -> Reading:  # noqa: ARG002 - the kind is known
        """Join the slides."""
        try:
            with zipfile.ZipFile(path) as archive:
                numbered = sorted(
                    (int(found[1]), found[0]) for found in map(SLIDE.fullmatch, archive.namelist()) if found
                )
                slides = [_words(archive.read(entry)) for _, entry in numbered]
        except (zipfile.BadZipFile, ET.ParseError):
            raise refusals.unreadable() from None
        starts, text = [], ""
        for slide in slides:
            text += "\n\n" if text and slide else ""
            starts.append(len(text))
            text += slide
        if not has_words(text):
            raise refusals.no_text()
        return Reading(text=text, pages=tuple(starts), metadata=PPTX.metadata)


def _words(slide: bytes) -> str:
    paragraphs = ET.fromstring(slide).iter(f"{DRAWING}p")  # noqa: S314 - entities were refused before
    return clean("\n\n".join(filter(str.strip, (_line(paragraph) for paragraph in paragraphs))))


def _line(paragraph: ET.Element) -> str:
    return "".join(run.text or "" for run in paragraph.iter(f"{DRAWING}t"))
