"""Small documents made by code, so that the tests of reading need no files: each says one known sentence."""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SENTENCE = "The heron waits in shallow water."
OFFICE = "http://schemas.openxmlformats.org"
OPEN = "urn:oasis:names:tc:opendocument:xmlns"
WORD = f'xmlns:w="{OFFICE}/wordprocessingml/2006/main"'
DRAWING = f'xmlns:a="{OFFICE}/drawingml/2006/main" xmlns:p="{OFFICE}/presentationml/2006/main"'
LINKS = f'xmlns:r="{OFFICE}/officeDocument/2006/relationships"'
SHEET = f'xmlns="{OFFICE}/spreadsheetml/2006/main"'
NONE, END, TABLE = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD  # what an allocation table of an OLE container says of a sector
DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>'


def packed(entries: dict[str, str | bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Pack entries into a zip."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def docx(*paragraphs: str, head: str = "", extra: dict[str, str | bytes] | None = None) -> bytes:
    """Write a Word document; `head` goes before its root element."""
    body = "".join(f"<w:p><w:r><w:t>{words}</w:t></w:r></w:p>" for words in paragraphs)
    document = f"{DECLARATION}{head}<w:document {WORD}><w:body>{body}</w:body></w:document>"
    main = _main("word/document.xml", "wordprocessingml.document")
    return packed({**main, "word/document.xml": document, **(extra or {})})


def pptx(*slides: str, shape: str = "") -> bytes:
    """Write a presentation; `shape` is added to each slide."""
    names = [f"slide{number}" for number in range(1, len(slides) + 1)]
    ids = "".join(f'<p:sldId id="{256 + n}" r:id="rId{n}"/>' for n in range(1, len(slides) + 1))
    links = [(f"rId{n}", "slide", f"slides/{name}.xml") for n, name in enumerate(names, 1)]
    return packed(
        {
            **_main(
                "ppt/presentation.xml", "presentationml.presentation", [f"ppt/slides/{name}.xml" for name in names]
            ),
            "ppt/presentation.xml": f"{DECLARATION}<p:presentation {DRAWING} {LINKS}>"
            f"<p:sldIdLst>{ids}</p:sldIdLst></p:presentation>",
            "ppt/_rels/presentation.xml.rels": _links(links),
            **{f"ppt/slides/{name}.xml": _slide(words, shape) for name, words in zip(names, slides, strict=True)},
        }
    )


def xlsx(*rows: tuple[str, ...]) -> bytes:
    """Write a workbook with one sheet."""
    cells = "".join(
        f'<row r="{y}">'
        + "".join(f'<c r="{chr(64 + x)}{y}" t="inlineStr"><is><t>{cell}</t></is></c>' for x, cell in enumerate(row, 1))
        + "</row>"
        for y, row in enumerate(rows, 1)
    )
    return packed(
        {
            **_main("xl/workbook.xml", "spreadsheetml.sheet", ["xl/worksheets/sheet1.xml"]),
            "xl/workbook.xml": f"{DECLARATION}<workbook {SHEET} {LINKS}>"
            '<sheets><sheet name="Birds" sheetId="1" r:id="rId1"/></sheets></workbook>',
            "xl/_rels/workbook.xml.rels": _links([("rId1", "worksheet", "worksheets/sheet1.xml")]),
            "xl/worksheets/sheet1.xml": f"{DECLARATION}<worksheet {SHEET}><sheetData>{cells}</sheetData></worksheet>",
        }
    )


def odt(*paragraphs: str) -> bytes:
    """Write an OpenDocument text."""
    mime = "application/vnd.oasis.opendocument.text"
    body = "".join(f"<text:p>{words}</text:p>" for words in paragraphs)
    return packed(
        {
            "mimetype": mime,
            "META-INF/manifest.xml": f'{DECLARATION}<manifest:manifest xmlns:manifest="{OPEN}:manifest:1.0">'
            f'<manifest:file-entry manifest:full-path="/" manifest:media-type="{mime}"/></manifest:manifest>',
            "content.xml": f'{DECLARATION}<office:document-content xmlns:office="{OPEN}:office:1.0" '
            f'xmlns:text="{OPEN}:text:1.0"><office:body><office:text>{body}</office:text></office:body>'
            "</office:document-content>",
        }
    )


def odp(*slides: str) -> bytes:
    """Write an OpenDocument presentation."""
    pages = "".join(
        f"<draw:page><draw:frame><draw:text-box><text:p>{words}</text:p></draw:text-box></draw:frame></draw:page>"
        for words in slides
    )
    return packed(
        {
            "mimetype": "application/vnd.oasis.opendocument.presentation",
            "content.xml": f'{DECLARATION}<office:document-content xmlns:office="{OPEN}:office:1.0" '
            f'xmlns:text="{OPEN}:text:1.0" xmlns:draw="{OPEN}:drawing:1.0"><office:body><office:presentation>'
            f"{pages}</office:presentation></office:body></office:document-content>",
        }
    )


def epub(title: str, *paragraphs: str) -> bytes:
    """Write a book of one chapter."""
    body = "".join(f"<p>{words}</p>" for words in paragraphs)
    return packed(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": f'{DECLARATION}<container version="1.0" '
            'xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles><rootfile full-path="book.opf" '
            'media-type="application/oebps-package+xml"/></rootfiles></container>',
            "book.opf": f'{DECLARATION}<package xmlns="http://www.idpf.org/2007/opf" version="3.0" '
            f'unique-identifier="i"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{title}</dc:title>'
            '<dc:identifier id="i">1</dc:identifier><dc:language>en</dc:language></metadata><manifest>'
            '<item id="c" href="c.xhtml" media-type="application/xhtml+xml"/></manifest>'
            '<spine><itemref idref="c"/></spine></package>',
            "c.xhtml": f'{DECLARATION}<html xmlns="http://www.w3.org/1999/xhtml"><head><title>{title}</title></head>'
            f"<body><h1>One</h1>{body}</body></html>",
        }
    )


def pdf(*pages: str, objects: dict[int, bytes] | None = None) -> bytes:
    """Write a PDF with a line of words on each page; `objects` replaces or adds objects by number."""
    count = len(pages)
    kids = b" ".join(b"%d 0 R" % (4 + 2 * place) for place in range(count))
    all_objects = {
        1: b"<</Type/Catalog/Pages 2 0 R>>",
        2: b"<</Type/Pages/Kids[" + kids + b"]/Count %d>>" % count,
        3: b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    }
    for place, words in enumerate(pages):
        number = 4 + 2 * place
        all_objects[number] = (
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Contents %d 0 R"
            b"/Resources<</Font<</F1 3 0 R>>>>>>" % (number + 1)
        )
        all_objects[number + 1] = stream(b"BT /F1 12 Tf 72 700 Td (" + words.encode("ascii") + b") Tj ET")
    return pdf_file(all_objects | (objects or {}))


def pdf_file(objects: dict[int, bytes]) -> bytes:
    """Join numbered objects into a PDF."""
    text, places = b"%PDF-1.4\n", {}
    for number, content in sorted(objects.items()):
        places[number] = len(text)
        text += b"%d 0 obj\n" % number + content + b"\nendobj\n"
    size = max(objects) + 1
    lines = [b"%010d 00000 n \n" % places[n] if n in places else b"0000000000 65535 f \n" for n in range(size)]
    table = b"xref\n0 %d\n" % size + b"".join(lines)
    return text + table + b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (size, len(text))


def stream(content: bytes, entries: bytes = b"") -> bytes:
    """Write a stream of a PDF."""
    return b"<<" + entries + b"/Length %d>>stream\n" % len(content) + content + b"\nendstream"


def notebook(*cells: tuple[str, str], outputs: list[dict[str, object]] | None = None) -> bytes:
    """Write a Jupyter notebook of (type, source) cells; the outputs belong to each code cell."""
    return json.dumps(
        {
            "cells": [
                {"cell_type": kind, "source": source.splitlines(keepends=True), "outputs": outputs or []}
                for kind, source in cells
            ],
            "metadata": {"kernelspec": {"language": "python"}},
            "nbformat": 4,
        },
        ensure_ascii=False,
    ).encode()


def compound(*names: str, streams: Mapping[str, bytes] | None = None, unused: int = NONE) -> bytes:
    """Write an OLE container with empty streams of these names, and with short streams that have content.

    The entries that the allocation table has for sectors beyond the end of the file are `unused`.
    """
    contents = sorted({**dict.fromkeys(names, b""), **(streams or {})}.items(), key=lambda one: (len(one[0]), one[0]))
    mini, mini_table, entries = b"", list[int](), list[bytes]()
    for number, (name, content) in enumerate(contents, 2):
        first, count = len(mini) // 64, -(-len(content) // 64)
        after = number if number <= len(contents) else NONE
        entries.append(_entry(name, 2, right=after, start=first if count else END, size=len(content)))
        mini_table += [*range(first + 1, first + count), END] if count else []
        mini += content.ljust(count * 64, b"\0")
    mini = mini.ljust(-(-len(mini) // 512) * 512, b"\0")
    directory = (len(entries) + 4) // 4
    table_at = 1 + directory
    mini_at = table_at + bool(mini)
    root = _entry("Root Entry", 5, child=1 if entries else NONE, start=mini_at if mini else END, size=len(mini))
    table = [TABLE, *range(2, table_at), END, *[END][: bool(mini)]]
    table += [*range(mini_at + 1, mini_at + len(mini) // 512), END] if mini else []
    header = struct.pack(
        "<8s16x5H10x8I109I",
        *(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", 0x3E, 3, 0xFFFE, 9, 6),
        *(1, 1, 0, 4096, table_at if mini else END, bool(mini), END, 0),
        *(0, *[NONE] * 108),
    )
    return (
        header
        + struct.pack("<128I", *table, *[unused] * (128 - len(table)))
        + b"".join([root, *entries]).ljust(directory * 512, b"\0")
        + b"".join(number.to_bytes(4, "little") for number in mini_table).ljust(512 * bool(mini), b"\xff")
        + mini
    )


def doc(text: str, unused: int = NONE) -> bytes:
    """Write an old Word document: its text is one piece, which a second stream says where to find."""
    start = 1024
    pieces = struct.pack("<IIHIH", 0, len(text), 0, start * 2 | 1 << 30, 0)
    where = struct.pack("<BI", 2, len(pieces)) + pieces
    stream = bytearray(start)
    struct.pack_into("<HH", stream, 0, 0xA5EC, 0xC1)
    struct.pack_into("<H", stream, 10, 0x200)  # the second stream is 1Table
    struct.pack_into("<H28xH", stream, 32, 14, 22)
    struct.pack_into("<I", stream, 76, len(text))
    struct.pack_into("<H264xII", stream, 152, 93, 0, len(where))
    return compound(streams={"WordDocument": bytes(stream) + text.encode("cp1252"), "1Table": where}, unused=unused)


def deflated(content: bytes, times: int) -> bytes:
    """Compress again and again."""
    for _ in range(times):
        content = zlib.compress(content, 9)
    return content


def _entry(name: str, kind: int, *, right: int = NONE, child: int = NONE, start: int = 0, size: int = 0) -> bytes:
    encoded = name.encode("utf-16-le")
    return struct.pack("<64sHBB3I36xIQ", encoded, len(encoded) + 2, kind, 1, NONE, right, child, start, size)


def _main(part: str, kind: str, others: list[str] | None = None) -> dict[str, str | bytes]:
    package, types = f"{OFFICE}/package/2006", f"application/vnd.openxmlformats-officedocument.{kind}"
    overrides = f'<Override PartName="/{part}" ContentType="{types}.main+xml"/>'
    sort = {
        "presentationml.presentation": "presentationml.slide",
        "spreadsheetml.sheet": "spreadsheetml.worksheet",
    }.get(kind)
    for other in others or []:
        overrides += (
            f'<Override PartName="/{other}" ContentType="application/vnd.openxmlformats-officedocument.{sort}+xml"/>'
        )
    return {
        "[Content_Types].xml": f'{DECLARATION}<Types xmlns="{package}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Default Extension="xml" ContentType="application/xml"/>{overrides}</Types>',
        "_rels/.rels": _links([("rId1", "officeDocument", part)]),
    }


def _links(links: list[tuple[str, str, str]]) -> str:
    lines = "".join(
        f'<Relationship Id="{key}" Type="{OFFICE}/officeDocument/2006/relationships/{kind}" Target="{target}"/>'
        for key, kind, target in links
    )
    return f'{DECLARATION}<Relationships xmlns="{OFFICE}/package/2006/relationships">{lines}</Relationships>'


def _slide(words: str, shape: str) -> str:
    return (
        f'{DECLARATION}<p:sld {DRAWING} {LINKS}><p:cSld><p:spTree><p:nvGrpSpPr><p:cNvPr id="1" name=""/><p:cNvGrpSpPr/>'
        '<p:nvPr/></p:nvGrpSpPr><p:grpSpPr/><p:sp><p:nvSpPr><p:cNvPr id="2" name="T"/><p:cNvSpPr/><p:nvPr/></p:nvSpPr>'
        f"<p:spPr/><p:txBody><a:bodyPr/><a:p><a:r><a:t>{words}</a:t></a:r></a:p></p:txBody></p:sp>{shape}"
        "</p:spTree></p:cSld></p:sld>"
    )
