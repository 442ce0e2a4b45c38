"""Readers detect the format of a file, decode and clean its text, and refuse dangerous containers (no sandbox here)."""

from __future__ import annotations

import io
import os
import socket
import struct
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.content import errors as refusals
from holdfast.content import reading
from holdfast.content.readers import archives, cleaning, decoding, files, formats
from holdfast.content.readers.cleaning import clean, first_heading, to_short_line
from holdfast.content.readers.dispatch import read_in_process
from holdfast.content.readers.formats import FileFormat, identify_format
from holdfast.content.readers.ole import root_names
from holdfast.content.readers.pdf_pages import page_starts
from holdfast.content.readers.slides import read_slides
from holdfast.content.reading import ReadLimits, read
from holdfast.content.sandbox import SandboxReply
from holdfast.errors import Permanent, Transient, WorkError
from tests.support.samples import SENTENCE, compound, docx, notebook, odp, packed, pptx

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.content.reading import ExtractedText

CHINESE = "所有权是最与众不同的特性、它让程序无需垃圾回收器即可保证内存安全。\n因此、理解所有权如何工作是十分重要的。\n"
JAPANESE = (
    "所有権は最もユニークな機能であり、これのおかげで安全性の担保を行うことができるのです。\nしたがって重要です。\n"
)
FRENCH = "La propriété a des conséquences pour tout le langage, où l'été naïf côtoie le cœur.\n".replace("œ", "oe")
POLISH = "Własność jest najbardziej wyjątkową cechą, która pozwala zażółcić gęślą jaźń.\n"
RUSSIAN = "Владение является самой уникальной особенностью языка и позволяет давать гарантии.\n"


def kept(folder: Path, data: bytes, name: str = "sample") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def refused(act: Callable[[], object], code: str) -> Permanent:
    with pytest.raises(Permanent) as caught:
        act()
    assert caught.value.code == code
    return caught.value


class TestPlainText:
    def read(
        self, folder: Path, data: bytes, name: str = "note.txt", limits: ReadLimits | None = None
    ) -> ExtractedText:
        return read(kept(folder, data), name, limits or ReadLimits())

    def test_text_is_read_as_it_is(self, tmp_path: Path) -> None:
        found = self.read(tmp_path, SENTENCE.encode())
        assert (found.text, found.title, found.pages, found.warnings) == (SENTENCE, None, (), ())
        assert found.metadata == {"mime": "text/plain"}

    def test_text_is_read_without_a_child_process(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reading, "SHARED_SANDBOX", None)
        assert self.read(tmp_path, b"x" * 1000).text == "x" * 1000

    def test_markdown_is_titled_by_its_first_heading(self, tmp_path: Path) -> None:
        assert self.read(tmp_path, b"Hi\n\n# The *heron*\n\n## More", "a.md").title == "The heron"

    def test_markdown_is_titled_by_its_front_matter(self, tmp_path: Path) -> None:
        front = b'---\nlayout: post\ntitle: "Herons"\n---\n# Other\n'
        assert self.read(tmp_path, front, "a.md").title == "Herons"
        assert self.read(tmp_path, front.replace(b"title", b"other"), "a.md").title == "Other"

    def test_the_metadata_of_source_code_name_its_language(self, tmp_path: Path) -> None:
        found = self.read(tmp_path, b"# not a title\nprint(1)\n", "main.py")
        assert found.metadata == {"mime": "text/x-python", "programming_language": "python"}
        assert (found.title, found.text) == (None, "# not a title\nprint(1)")

    def test_xml_is_not_parsed(self, tmp_path: Path) -> None:
        bomb = b'<!DOCTYPE x [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><x>&b;</x>'
        assert self.read(tmp_path, bomb, "a.xml").text == bomb.decode()

    def test_a_guessed_encoding_is_reported_as_a_warning(self, tmp_path: Path) -> None:
        found = self.read(tmp_path, FRENCH.encode("latin-1"))
        assert found.text + "\n" == FRENCH
        assert "cp1252" in found.warnings[0]

    @pytest.mark.parametrize("data", [b"", b" \n\t\r\n", b"--- *** ---", b"\xef\xbb\xbf"])
    def test_a_file_without_words_is_refused(self, tmp_path: Path, data: bytes) -> None:
        refused(lambda: self.read(tmp_path, data), "no_text")

    def test_more_bytes_than_allowed_are_refused(self, tmp_path: Path) -> None:
        assert self.read(tmp_path, b"x" * 10, limits=ReadLimits(bytes=10)).text
        refused(lambda: self.read(tmp_path, b"x" * 11, limits=ReadLimits(bytes=10)), "file_too_large")

    def test_a_file_that_grows_while_it_is_read_is_refused(self, tmp_path: Path) -> None:
        path = kept(tmp_path, b"x" * 11)
        refused(lambda: read_in_process(formats.TEXT, path, "a.txt", ReadLimits(bytes=10)), "file_too_large")

    @pytest.mark.parametrize(
        "size",
        [files.FIRST_READ_BYTES - 1, files.FIRST_READ_BYTES, files.FIRST_READ_BYTES + 1, 3 * files.FIRST_READ_BYTES],
    )
    def test_a_file_is_read_whole_or_refused_whatever_its_size(self, tmp_path: Path, size: int) -> None:
        path = kept(tmp_path, b"x" * size)
        assert files.read_bytes(path, ReadLimits(bytes=size)) == b"x" * size
        refused(lambda: files.read_bytes(path, ReadLimits(bytes=size - 1)), "file_too_large")

    def test_more_characters_than_allowed_are_refused(self, tmp_path: Path) -> None:
        assert self.read(tmp_path, ("é" * 10).encode(), limits=ReadLimits(text=10)).text
        refused(lambda: self.read(tmp_path, ("é" * 11).encode(), limits=ReadLimits(text=10)), "too_much_text")


class TestPaths:
    def test_a_missing_file_is_reported_as_missing(self, tmp_path: Path) -> None:
        refused(lambda: read(tmp_path / "gone", "gone.txt"), "file_missing")
        refused(lambda: read(tmp_path / "no\0where", "a.txt"), "file_missing")
        refused(lambda: read(kept(tmp_path, b"x") / "below", "a.txt"), "file_missing")

    def test_a_link_to_a_file_is_followed(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(kept(tmp_path, b"words"))
        assert read(tmp_path / "link", "a.txt").text == "words"

    def test_a_directory_is_refused(self, tmp_path: Path) -> None:
        refused(lambda: read(tmp_path, "a.txt"), "not_a_file")

    def test_a_device_is_refused(self) -> None:
        refused(lambda: read(Path("/dev/zero"), "a.txt"), "not_a_file")

    def test_a_pipe_is_refused_without_blocking(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        refused(lambda: read(tmp_path / "pipe", "a.txt"), "not_a_file")

    def test_a_socket_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)  # the path of a socket has at most 107 bytes
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("socket")
            refused(lambda: read(tmp_path / "socket", "a.txt"), "not_a_file")

    def test_a_loop_of_links_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "a").symlink_to(tmp_path / "b")
        (tmp_path / "b").symlink_to(tmp_path / "a")
        refused(lambda: read(tmp_path / "a", "a.txt"), "not_a_file")

    def test_a_disk_error_is_transient(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = kept(tmp_path, b"words")

        def fail(*_: object, **__: object) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(Path, "open", fail)
        with pytest.raises(Transient) as caught:
            read(path, "a.txt")
        assert caught.value.code == "file_unavailable"

    def test_a_file_without_read_permission_is_reported_as_such(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = kept(tmp_path, b"words")

        def forbid(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "open", forbid)
        refused(lambda: read(path, "a.txt"), "not_permitted")


class TestDecoding:
    @pytest.mark.parametrize(
        ("text", "encoding"),
        [
            (CHINESE, "utf-8"),
            (CHINESE, "utf-8-sig"),
            (CHINESE, "utf-16"),
            (CHINESE, "utf-32"),
            (CHINESE, "utf-16-le"),
            (CHINESE, "utf-16-be"),
            (CHINESE, "gb18030"),
            (JAPANESE, "utf-16-le"),
            (JAPANESE, "utf-16-be"),
            (JAPANESE, "shift_jis"),
            (JAPANESE, "euc_jp"),
            (FRENCH, "utf-16-le"),
            (FRENCH, "utf-16-be"),
            (FRENCH, "latin-1"),
            (POLISH, "cp1250"),
            (RUSSIAN, "cp1251"),
            (RUSSIAN, "koi8_r"),
        ],
    )
    def test_text_is_recognised_and_decoded(self, text: str, encoding: str) -> None:
        data = text.encode(encoding)
        assert decoding.is_text(data)
        assert decoding.decode(data).text == text

    @pytest.mark.parametrize(
        ("text", "encoding"),
        [(CHINESE, "gb18030"), (JAPANESE, "shift_jis"), (JAPANESE, "euc_jp"), (FRENCH, "latin-1")],
    )
    def test_common_encodings_are_decoded_without_a_library(
        self, text: str, encoding: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def missing(_: str) -> None:
            raise ModuleNotFoundError

        monkeypatch.setattr(decoding, "import_module", missing)
        assert decoding.decode(text.encode(encoding)).text == text

    def test_a_few_foreign_words_in_a_long_english_text_are_decoded(self) -> None:
        data = b"Plain English words. " * 20_000 + CHINESE.encode("gb18030")
        assert decoding.decode(data).text.endswith(CHINESE)

    def test_utf8_that_was_cut_within_a_character_is_still_utf8(self) -> None:
        assert decoding.decode(CHINESE.encode()[:-2]).text.startswith(CHINESE[:-3])

    def test_an_accented_last_letter_is_not_decoded_as_cut_utf8(self) -> None:
        assert decoding.decode("un café".encode("latin-1")).text == "un café"

    def test_a_declared_encoding_is_used_if_it_fits(self) -> None:
        assert decoding.decode("Ł".encode("iso8859_2"), "iso8859_2").text == "Ł"
        assert decoding.decode(CHINESE.encode(), "ascii").text == CHINESE

    @pytest.mark.parametrize("declared", ["base64", "no-such-codec", "utf-16", "undefined", "idna", "a\0b"])
    def test_an_invalid_declared_encoding_is_ignored(self, declared: str) -> None:
        assert decoding.decode(b"caf\xe9 noir", declared).text == "café noir"

    @pytest.mark.parametrize(
        "data",
        [
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
            b"\x7fELF\2\1\1" + bytes(9),
            bytes(range(256)),
            bytes(100),
            b"\x01\x02\x03\x04",
        ],
    )
    def test_binary_data_are_not_text(self, data: bytes) -> None:
        assert not decoding.is_text(data)

    @given(st.binary(max_size=300))
    def test_any_bytes_become_clean_text(self, data: bytes) -> None:
        text = clean(decoding.decode(data).text)
        text.encode()  # no lone surrogates
        assert text.isprintable() or all(c in "\n\t" or ord(c) > 0x9F or c.isprintable() for c in text)


class TestCleaning:
    def test_line_ends_become_newlines(self) -> None:
        assert clean("a\r\nb\rc\x0cd\u2028e") == "a\nb\nc\nd\ne"

    def test_control_characters_and_lone_surrogates_are_dropped(self) -> None:
        assert clean("a\0b\x02c\ud800d\x1be\ufefff\x9bg\th") == "abcdefg\th"

    def test_text_in_ascii_is_cleaned_like_any_other(self) -> None:
        text = bytes(range(128)).decode() * 2
        assert clean(text) == clean(text + "é").removesuffix("é")

    def test_trailing_blanks_and_blank_lines_at_both_ends_are_dropped(self) -> None:
        assert clean("\n\n  a \t\n b\u00a0\n\n") == "  a\n b"

    def test_cleaning_is_linear(self) -> None:
        assert clean(" " * 2_000_000 + "x") == " " * 2_000_000 + "x"

    @given(st.text())
    def test_cleaning_is_idempotent(self, text: str) -> None:
        assert clean(clean(text)) == clean(text)

    @pytest.mark.parametrize(
        ("markdown", "heading"),
        [
            ("# One\n## Two", "One"),
            ("text\n\n### **Deep** `x` ###", "Deep x"),
            ("Over\n====\n", "Over"),
            ("```\n# comment\n```\n\n# Real", "Real"),
            ("~~~\n```\n# comment\n~~~\n# Real", "Real"),
            ("#hashtag\n\n# !!!\n# Real", "Real"),
            ("no heading", None),
        ],
    )
    def test_the_first_heading_is_found(self, markdown: str, heading: str | None) -> None:
        assert first_heading(markdown) == heading

    @pytest.mark.parametrize(
        "made_up", ["Untitled", "(anonymous)", "PowerPoint Presentation", "Slide 1", "", "  ", "--"]
    )
    def test_a_placeholder_title_is_dropped(self, made_up: str) -> None:
        assert cleaning.drop_placeholder(made_up) is None

    def test_metadata_become_one_short_line(self) -> None:
        assert to_short_line(" a\n b\0 " + "c" * 500) == "a b " + "c" * 196


class TestKinds:
    @pytest.mark.parametrize(
        ("head", "name", "kind"),
        [
            (b"%PDF-1.7\n", "report.txt", formats.PDF),
            (b"junk\n%PDF-1.7\n", "report.pdf", formats.PDF),
            (b"1 0 obj\nendobj\n", "report.pdf", formats.PDF),
            (b"magic = b'%PDF-'\n", "magic.py", formats.FORMAT_BY_EXTENSION["py"]),
            (b"PK\x03\x04", "picture.png", formats.ZIP),
            (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "x", formats.OLE),
            (b"{\\rtf1 x}", "letter.doc", formats.RTF),
            (b"\xef\xbb\xbf{\\rtf1 x}", "letter", formats.RTF),
            (b"<!DOCTYPE html><p>x", "page.txt", formats.HTML),
            (b"<!-- saved -->\n<HTML>", "report.doc", formats.HTML),
            ("<html>x".encode("utf-16"), "page", formats.HTML),
            (b"<?xml version='1.0'?><html>", "page", formats.HTML),
            (b"<p>x", "page.HTM", formats.HTML),
            (b"<html>", "template.vue", formats.FORMAT_BY_EXTENSION["vue"]),
            (b"From: a\nTo: b\nSubject: c\n\nx", "message", formats.MAIL),
            (b"From: a\nTo: b\nSubject: c\n\nx", "message.txt", formats.TEXT),
            (b"x", "letter.eml", formats.MAIL),
            (b"{}", "x.ipynb", formats.NOTEBOOK),
            (b"{}", "x.json", formats.FORMAT_BY_EXTENSION["json"]),
            (b"a,b", "x.CSV", formats.FORMAT_BY_EXTENSION["csv"]),
            (b"# x", "README.md", formats.MARKDOWN),
            (b"x: y", "Makefile", formats.FORMAT_BY_EXTENSION["makefile"]),
            (b"x", "folder.py/notes", formats.TEXT),
            (b"words", "renamed.pdf", formats.TEXT),
            (b"words", "", formats.TEXT),
        ],
    )
    def test_the_content_decides_the_format_before_the_name(self, head: bytes, name: str, kind: FileFormat) -> None:
        assert identify_format(head, name) == kind

    def test_unknown_binary_data_are_refused(self) -> None:
        refused(lambda: identify_format(b"\x89PNG\r\n\x1a\n\0\0\0\r", "picture.png"), "unsupported_format")

    def test_binary_data_with_the_name_of_a_document_are_reported_as_unreadable(self) -> None:
        refused(lambda: identify_format(bytes(range(256)), "report.pdf"), "unreadable")

    @pytest.mark.parametrize(
        ("names", "mime", "kind"),
        [
            ({"word/document.xml"}, b"", formats.DOCX),
            ({"PPT/presentation.xml"}, b"", formats.PPTX),
            ({"xl/workbook.xml"}, b"", formats.XLSX),
            ({"content.xml"}, b"application/vnd.oasis.opendocument.spreadsheet\n", formats.ODS),
            ({"META-INF/container.xml"}, b"", formats.EPUB),
        ],
    )
    def test_a_zip_file_is_identified_by_its_entries(self, names: set[str], mime: bytes, kind: FileFormat) -> None:
        assert formats.identify_zip(names, mime) == kind

    def test_any_other_archive_is_refused(self) -> None:
        refused(lambda: formats.identify_zip({"holiday.jpg"}, b""), "unsupported_archive")


class TestCompoundFiles:
    def kind(self, *names: str, name: str = "x") -> FileFormat:
        return formats.identify_ole(io.BytesIO(compound(*names)), name)

    def test_all_names_under_the_root_are_found(self) -> None:
        names = [f"Stream {number}" for number in range(20)]
        assert root_names(io.BytesIO(compound(*names))) == set(names)

    def test_the_streams_under_the_root_identify_the_format(self) -> None:
        assert self.kind("1Table", "WordDocument", name="x.xls") == formats.DOC
        assert self.kind("Workbook") == formats.XLS
        assert self.kind("PowerPoint Document") == formats.PPT
        assert self.kind("__properties_version1.0", "WordDocument") == formats.MSG

    @pytest.mark.parametrize("protected", ["EncryptedPackage", "EncryptedSummary", "\tDRMContent"])
    def test_an_encrypted_file_is_refused(self, protected: str) -> None:
        refused(lambda: self.kind("WordDocument", protected), "encrypted")

    def test_with_a_broken_root_the_name_decides_the_format(self) -> None:
        assert formats.identify_ole(io.BytesIO(compound("WordDocument")[:600]), "x.doc") == formats.DOC
        refused(lambda: self.kind("Something", name="x.bin"), "unsupported_container")

    @given(st.binary(max_size=600))
    def test_reading_a_broken_directory_terminates(self, data: bytes) -> None:
        whole = compound("WordDocument", "1Table", "Data", "CompObj", "More")
        for broken in (data, whole[:76] + data, whole[:512] + data, whole[:1024] + data):
            root_names(io.BytesIO(broken))


class TestArchives:
    """Archives are inspected, and refused if dangerous, before anything in them is parsed."""

    def inspect(self, folder: Path, data: bytes, limits: ReadLimits | None = None) -> FileFormat:
        return archives.inspect_zip(kept(folder, data), limits or ReadLimits())

    def test_a_normal_document_is_accepted(self, tmp_path: Path) -> None:
        assert self.inspect(tmp_path, docx(SENTENCE)) == formats.DOCX

    def test_entries_that_are_too_large_in_total_are_refused(self, tmp_path: Path) -> None:
        data = docx(extra={f"word/{n}": os.urandom(1000) for n in range(10)})
        assert self.inspect(tmp_path, data, ReadLimits(expanded=20_000))
        refused(lambda: self.inspect(tmp_path, data, ReadLimits(expanded=10_000)), "unpacked_too_large")

    def test_a_large_entry_with_a_very_high_compression_ratio_is_refused(self, tmp_path: Path) -> None:
        data = docx(extra={"word/zeros": bytes(archives.RATIO_CHECK_BYTES + 1)})
        refused(lambda: self.inspect(tmp_path, data), "unpacked_too_large")

    def test_a_small_entry_may_have_any_compression_ratio(self, tmp_path: Path) -> None:
        assert self.inspect(tmp_path, docx(extra={"word/zeros": bytes(archives.RATIO_CHECK_BYTES // 2)}))

    def test_very_many_entries_are_refused(self, tmp_path: Path) -> None:
        data = docx(extra={f"word/{n}": b"" for n in range(archives.MOST_ENTRIES + 1)})
        refused(lambda: self.inspect(tmp_path, data), "unpacked_too_large")

    def test_a_declared_size_that_is_too_small_is_refused(self, tmp_path: Path) -> None:
        data = docx(extra={"word/lie": bytes(100_000)})
        honest, liar = struct.pack("<I", 100_000), struct.pack("<I", 10)
        assert data.count(honest) == 2
        refused(lambda: self.inspect(tmp_path, data.replace(honest, liar)), "unreadable")

    def test_entries_that_share_their_bytes_are_refused(self, tmp_path: Path) -> None:
        with zipfile.ZipFile(path := tmp_path / "overlapping", "w") as archive:
            archive.writestr("word/document.xml", b"x" * 1000)
            first = archive.infolist()[0]
            for number in range(20):
                copy = zipfile.ZipInfo(f"word/{number:02}doc.xml")
                copy.file_size = copy.compress_size = first.compress_size
                copy.CRC, copy.header_offset = first.CRC, first.header_offset
                archive.filelist.append(copy)
                archive.NameToInfo[copy.filename] = copy
        refused(lambda: archives.inspect_zip(path, ReadLimits()), "unreadable")

    @pytest.mark.parametrize("encoding", ["ascii", "utf-16-le", "utf-16-be"])
    def test_xml_that_declares_entities_is_refused(self, tmp_path: Path, encoding: str) -> None:
        bomb = "x" * archives.PIECE + '<!DOCTYPE x [<!ENTITY a "aaaa">]>'
        for padding in (0, 4, 9):  # the declaration may cross the boundary of two pieces
            entry = bomb[padding + 20 :].encode(encoding)
            refused(lambda entry=entry: self.inspect(tmp_path, docx(extra={"word/x.xml": entry})), "reader_failed")  # type: ignore[misc]

    def test_images_may_contain_entity_declarations(self, tmp_path: Path) -> None:
        assert self.inspect(tmp_path, docx(extra={"word/media/x.svg": b'<!ENTITY a "b">'})) == formats.DOCX

    def test_an_encrypted_archive_is_refused(self, tmp_path: Path) -> None:
        data = bytearray(docx(SENTENCE))
        for signature, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            at = data.find(signature)
            data[at + place] |= 1
        refused(lambda: self.inspect(tmp_path, bytes(data)), "encrypted")

    @pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    def test_an_unusual_compression_method_is_refused(self, tmp_path: Path, method: int) -> None:
        refused(lambda: self.inspect(tmp_path, packed({"word/document.xml": "<x/>"}, method)), "reader_failed")

    @pytest.mark.parametrize("length", [4, 30, 100, 500])
    def test_a_truncated_archive_is_refused(self, tmp_path: Path, length: int) -> None:
        refused(lambda: self.inspect(tmp_path, docx(SENTENCE)[:length]), "unreadable")

    @pytest.mark.parametrize("place", [b"\xff\xff\xff\x7f", bytes(4)], ids=["behind", "before"])
    def test_a_position_outside_the_file_is_reported_as_damage_and_not_as_a_disk_error(
        self, tmp_path: Path, place: bytes
    ) -> None:
        """The offset of the directory shifts all entries. A wrong offset puts them outside the file."""
        data = bytearray(b"shifted" + docx(SENTENCE))
        end = data.rfind(b"PK\x05\x06")
        data[end + 16 : end + 20] = place
        refused(lambda: self.inspect(tmp_path, bytes(data)), "unreadable")

    @pytest.mark.parametrize("place", [8, 24])  # flags, size
    def test_an_entry_with_two_contradicting_descriptions_is_refused(self, tmp_path: Path, place: int) -> None:
        data = bytearray(docx(SENTENCE))
        data[data.find(b"PK\x01\x02") + place + (3 if place == 24 else 0)] |= 0x41  # encrypted, or 1 GiB
        refused(lambda: self.inspect(tmp_path, bytes(data)), "unreadable")

    @given(st.integers(0, 700), st.binary(min_size=1, max_size=8))
    def test_a_broken_archive_raises_no_unexpected_error(self, place: int, damage: bytes) -> None:
        data = docx(SENTENCE)
        broken = data[:place] + damage + data[place + len(damage) :]
        with tempfile.TemporaryDirectory() as folder, suppress(Permanent):
            self.inspect(Path(folder), broken)


class TestOwnReaders:
    def read(self, kind: FileFormat, folder: Path, data: bytes) -> ExtractedText:
        return read_in_process(kind, kept(folder, data), "sample", ReadLimits())

    def test_a_notebook_keeps_prose_code_and_printed_output(self, tmp_path: Path) -> None:
        printed: list[dict[str, object]] = [
            {"output_type": "stream", "text": ["42\n"]},
            {"data": {"image/png": "AAAA"}},
        ]
        found = self.read(
            formats.NOTEBOOK, tmp_path, notebook(("markdown", "# 鹭 ®\n\n- a\n- b"), ("code", "6*7"), outputs=printed)
        )
        assert found.text == "# 鹭 ®\n\n- a\n- b\n\n```python\n6*7\n```\n\n```\n42\n```"
        assert found.title == "鹭 ®"
        assert found.metadata["programming_language"] == "python"

    def test_long_output_of_a_notebook_is_cut(self, tmp_path: Path) -> None:
        found = self.read(formats.NOTEBOOK, tmp_path, notebook(("code", "x"), outputs=[{"text": "y" * 100_000}]))
        assert len(found.text) < 3000

    def test_code_that_contains_fences_is_enclosed_in_a_longer_fence(self, tmp_path: Path) -> None:
        found = self.read(formats.NOTEBOOK, tmp_path, notebook(("code", "a = '''\n```\n# not a title\n```'''")))
        assert found.text.startswith("````python\n")
        assert found.title is None

    @pytest.mark.parametrize("data", [b"{", b"[]", b"{}", b'{"cells": 3}', b'{"cells": [3]}', b"[" * 100_000])
    def test_a_broken_notebook_is_refused(self, tmp_path: Path, data: bytes) -> None:
        refused(lambda: self.read(formats.NOTEBOOK, tmp_path, data), "unreadable")

    def test_an_empty_notebook_has_no_text(self, tmp_path: Path) -> None:
        refused(lambda: self.read(formats.NOTEBOOK, tmp_path, notebook()), "no_text")

    def test_a_message_keeps_its_headers_and_line_breaks(self, tmp_path: Path) -> None:
        mail = (
            b"From: =?utf-8?q?J=C3=BCrgen?= <j@example.com>\r\nTo: a@example.com\r\nSubject: Herons\r\n"
            b"Date: Mon, 1 Jan 2024 10:00:00 +0000\r\nContent-Type: text/plain; charset=gb18030\r\n\r\n"
        ) + "你好。\r\n\r\n再见".encode("gb18030")
        found = self.read(formats.MAIL, tmp_path, mail)
        assert found.text.startswith("Subject: Herons\nFrom: Jürgen <j@example.com>\nTo: a@example.com\nDate: ")
        assert found.text.endswith("\n\n你好。\n\n再见")
        assert (found.title, found.metadata["author"]) == ("Herons", "Jürgen <j@example.com>")

    def test_attachments_of_a_message_are_counted_and_not_read(self, tmp_path: Path) -> None:
        mail = (
            b"Subject: s\nContent-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/plain\n\nbody\n"
            b"--b\nContent-Type: text/plain\nContent-Disposition: attachment; filename=a.txt\n\nsecret\n--b--\n"
        )
        found = self.read(formats.MAIL, tmp_path, mail)
        assert found.text == "Subject: s\n\nbody"
        assert found.warnings == ("Attachments were not read: 1.",)

    @pytest.mark.parametrize(
        "mail",
        [
            b"\0\xff" * 50,
            b"Content-Type: multipart/mixed; boundary=\n\n--\n",
            b"Subject: =?x?b?!!?=\nContent-Type: text/plain; charset=nonsense\n\nwords",
            b"".join(b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (n, n) for n in range(2000)),
        ],
    )
    def test_a_broken_message_is_read_or_refused(self, tmp_path: Path, mail: bytes) -> None:
        try:
            self.read(formats.MAIL, tmp_path, mail)
        except Permanent as refusal:
            assert refusal.code in {"unreadable", "no_text"}  # noqa: PT017 - reading may also succeed

    def test_slides_are_read_in_their_order(self, tmp_path: Path) -> None:
        words = [f"Slide of heron {number}" for number in range(1, 12)]
        found = read_slides(kept(tmp_path, pptx(*words)), formats.PPTX, ReadLimits())
        assert [found.text[start : start + len(word)] for start, word in zip(found.pages, words, strict=True)] == words

    def test_an_open_presentation_is_read(self, tmp_path: Path) -> None:
        found = self.read(formats.ODP, tmp_path, odp("Herons", SENTENCE))
        assert (found.text, found.pages) == (f"Herons\n\n{SENTENCE}", (0, 8))

    @pytest.mark.parametrize("entries", [{"x": "y"}, {"content.xml": "<unclosed"}])
    def test_a_broken_presentation_is_refused(self, tmp_path: Path, entries: dict[str, str | bytes]) -> None:
        refused(lambda: self.read(formats.ODP, tmp_path, packed(entries)), "unreadable")


class TestAnswersOfAChild:
    """A reply of the sandbox is used only if it has the right shape."""

    HEAD: ClassVar[dict[str, object]] = {"title": "t", "pages": [0, 99], "metadata": {"a": "b"}, "warnings": ["w"]}

    def test_a_valid_reply_becomes_an_extracted_text(self) -> None:
        found = reading._parse_reply(SandboxReply(dict(self.HEAD), bytearray("é".encode())), ReadLimits())
        assert (found.text, found.title, found.pages, found.warnings) == ("é", "t", (0, 1), ("w",))

    def test_more_text_than_allowed_is_refused(self) -> None:
        refused(
            lambda: reading._parse_reply(SandboxReply(dict(self.HEAD), bytearray(11)), ReadLimits(text=10)),
            "too_much_text",
        )

    @pytest.mark.parametrize("change", [{"pages": "x"}, {"pages": None}, {"metadata": []}, {"warnings": 3}])
    def test_a_header_of_the_wrong_shape_is_refused(self, change: dict[str, object]) -> None:
        refused(
            lambda: reading._parse_reply(SandboxReply({**self.HEAD, **change}, bytearray()), ReadLimits()),
            "reader_crashed",
        )

    def test_a_body_that_is_not_utf8_is_refused(self) -> None:
        refused(
            lambda: reading._parse_reply(SandboxReply(dict(self.HEAD), bytearray(b"\xff")), ReadLimits()),
            "reader_crashed",
        )


class TestPages:
    def blocks(self, *pages: str) -> list[dict[str, object]]:
        return [{"page": n, "content": {"node_type": "paragraph", "text": text}} for n, text in enumerate(pages, 1)]

    def test_a_page_starts_at_its_first_letters(self) -> None:
        text = "# One heron\n\n**stands** still.\n\n- Two herons fly."
        starts = page_starts(text, self.blocks("One heron\nstands\nstill.", "Two her\x02ons fly."))
        assert [text[start : start + 5] for start in starts] == ["# One", "- Two"]

    def test_an_empty_page_begins_where_the_next_one_does(self) -> None:
        text = "First page.\n\nThird page."
        assert page_starts(text, [*self.blocks("First page."), *self.blocks("", "", "Third page.")[2:]]) == (0, 13, 13)

    def test_pages_with_the_same_beginning_are_distinguished(self) -> None:
        head = "The annual report of the heron society, volume"
        text = f"{head} one is long enough.\n\n{head} two."
        assert page_starts(text, self.blocks(f"{head} one is long enough.", f"{head} two."))[1] == text.rindex(head)

    def test_a_page_that_cannot_be_found_begins_where_the_letters_before_it_end(self) -> None:
        text = "aaaa bbbb\n\ncccc dddd"
        assert page_starts(text, self.blocks("aaaa bbbb", "zzzz", "cccc dddd")) == (0, 11, 11)

    def test_page_starts_never_decrease(self) -> None:
        text = "b\n\na\n\nb"
        starts = page_starts(text, self.blocks("a", "b", "a", "", "b"))
        assert list(starts) == sorted(starts)

    def test_without_blocks_there_are_no_pages(self) -> None:
        assert page_starts("text", []) == ()


class TestRefusals:
    ALL = (
        Permanent("unsupported_format"),
        Permanent("unsupported_archive"),
        Permanent("unsupported_container"),
        refusals.encrypted(),
        refusals.unreadable(),
        refusals.no_text(),
        refusals.file_too_large(10, 5),
        refusals.unpacked_too_large(5),
        Permanent("too_many_pages", params={"pages": "10", "most": "5"}),
        refusals.too_much_text(5),
        refusals.too_slow(5),
        refusals.too_much_memory(5),
        refusals.reader_crashed(),
        refusals.reader_failed(),
        Transient("reader_broken", params={"library": "PDFium", "detail": "it is gone"}),
        Permanent("reader_missing"),
        refusals.file_missing(),
        refusals.not_a_file(),
        Permanent("not_permitted"),
        Transient("file_unavailable"),
        refusals.reader_unavailable(),
    )

    @pytest.mark.parametrize("refusal", ALL, ids=lambda refusal: str(refusal)[:40])
    def test_each_refusal_states_what_happened_and_what_to_do_next(self, refusal: WorkError) -> None:
        sentences = str(refusal).split(". ")
        assert len(sentences) >= 2
        assert str(refusal).endswith((".", "retry."))
        next_steps = ("add ", "save ", "split ", "install ", "grant ", "check ", "set ")
        assert any(verb in str(refusal).lower() for verb in next_steps)
        assert "…" not in str(refusal)  # no parameter is missing

    def test_a_refusal_names_the_size_and_the_limit(self) -> None:
        assert str(refusals.file_too_large((300 << 20) + 1, 256 << 20)) == (
            "The file has 300 MiB, and Holdfast reads at most 256 MiB. Split it and add the parts."
        )
        assert refusals.file_too_large(11, 10).params == {"size": "11 B", "most": "10 B"}
        assert refusals.too_much_memory(3 << 19).params == {"memory": "1.5 MiB"}
        assert refusals.too_much_text(67_108_864).params == {"most": "67,108,864"}

    def test_no_refusal_quotes_the_file(self, tmp_path: Path) -> None:
        canary = "zq8canary"
        for name, data in {
            "a.ipynb": f'{{"{canary}'.encode(),
            "a.zip": packed({f"{canary}.txt": canary}),
            "a.docx": docx(canary, head=f'<!DOCTYPE x [<!ENTITY {canary} "x">]>'),
            "a.bin": canary.encode() + bytes(20),
        }.items():
            path = kept(tmp_path, data, name)
            with pytest.raises(Permanent) as caught:
                read_in_process(identify_format(data, name), path, name, ReadLimits())
            assert canary not in str(caught.value) + str(caught.value.params)
