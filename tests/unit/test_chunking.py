"""Chunks cover the text, fit the size limit, break at sensible places, and mostly survive an edit elsewhere."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from functools import cache
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from holdfast.content.chunking import ChunkingRules, ChunkSpan, estimate_tokens, split_into_chunks
from holdfast.content.token_estimate import character_weights, weigh
from holdfast.errors import BadSettings

if TYPE_CHECKING:
    from collections.abc import Callable

USUAL = ChunkingRules()
SMALL = ChunkingRules(size=32, overlap=8)
RULES = [USUAL, SMALL, ChunkingRules(size=16, overlap=5), ChunkingRules(size=64, overlap=0)]

WORDS = re.findall(
    r"\w+",
    """anchor boundary chunk document edit fence generation heading index job key lease memo note owner paragraph query
    recipe slot ticket unit vector worker of the and to in is a that never always once again before after""",
)
CHARACTERS = "文書検索章節見出段落単位重境界編集世代鍵読写保存索引問答言葉所有権借用生命周期模式匹配"


def own(text: str, chunk: ChunkSpan) -> str:
    return text[chunk.own_start : chunk.end]


def owns(text: str, rules: ChunkingRules = USUAL) -> list[str]:
    return [own(text, chunk) for chunk in split_into_chunks(text, rules)]


@cache
def identities(text: str, rules: ChunkingRules = USUAL) -> Counter[tuple[str, tuple[str, ...]]]:
    return Counter((text[chunk.start : chunk.end], chunk.headings) for chunk in split_into_chunks(text, rules))


def assert_sound(text: str, rules: ChunkingRules) -> None:
    """Check the invariants: the own parts cover the text in order; every chunk fits and is not blank."""
    past = body = 0
    for chunk in split_into_chunks(text, rules):
        assert past <= chunk.own_start < chunk.end <= len(text)
        assert not text[past : chunk.own_start].strip(), "only white space is left out"
        assert body <= chunk.start <= chunk.own_start, "what is repeated belongs to the chunk before"
        assert own(text, chunk).strip()
        assert estimate_tokens(text[chunk.start : chunk.end]) <= rules.size
        assert estimate_tokens(text[chunk.start : chunk.own_start]) <= rules.overlap
        past, body = chunk.end, chunk.own_start
    assert not text[past:].strip()


def changed(before: str, after: str, rules: ChunkingRules = USUAL) -> int:
    """Count the chunks that an edit adds or removes, whichever number is higher. Each added chunk is paid for."""
    old, new = identities(before, rules), identities(after, rules)
    return max((new - old).total(), (old - new).total())


class Writer:
    """Writes the same text for the same seed. Python guarantees a stable sequence only for `random()`."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)

    def number(self, least: int, most: int) -> int:
        return least + int(self.chance.random() * (most - least + 1))

    def words(self, least: int, most: int) -> str:
        return " ".join(WORDS[self.number(0, len(WORDS) - 1)] for _ in range(self.number(least, most)))

    def sentence(self) -> str:
        return self.words(4, 24).capitalize() + "."

    def japanese(self) -> str:
        return "".join(CHARACTERS[self.number(0, len(CHARACTERS) - 1)] for _ in range(self.number(8, 40))) + "。"

    def paragraph(self) -> str:
        return " ".join(self.sentence() for _ in range(self.number(1, 9)))

    def asian(self) -> str:
        return "".join(self.japanese() for _ in range(self.number(1, 8)))

    def items(self) -> str:
        return "\n".join(f"- {self.sentence()}" for _ in range(self.number(2, 9)))

    def code(self) -> str:
        lines = [f"{self.words(1, 1)} = {self.words(1, 6)}  # {self.words(1, 3)}" for _ in range(self.number(2, 30))]
        return "\n".join(["```python", "# not a heading", *lines, "```"])

    def table(self) -> str:
        rows = [f"| {self.words(1, 3)} | {self.number(0, 9999)} |" for _ in range(self.number(2, 20))]
        return "\n".join(["| name | number |", "|------|--------|", *rows])

    def heading(self) -> str:
        return "#" * self.number(1, 4) + " " + self.words(1, 5).capitalize()

    def block(self) -> str:
        kinds = (
            [self.paragraph] * 8 + [self.asian] * 2 + [self.items] * 2 + [self.heading] * 2 + [self.code, self.table]
        )
        return kinds[self.number(0, len(kinds) - 1)]()

    def document(self, length: int) -> str:
        blocks = ["# The document"]
        while length > 0:
            blocks.append(self.block())
            length -= len(blocks[-1].encode())
        return "\n\n".join(blocks) + "\n"

    def line(self, length: int) -> str:
        sentences = []
        while length > 0:
            sentences.append(self.sentence())
            length -= len(sentences[-1])
        return " ".join(sentences)


def sections(seed: int) -> str:
    """Write 60 sections, most of them tiny and some long."""
    writer = Writer(seed)
    lengths = [writer.number(1, 8) if writer.number(0, 3) else writer.number(20, 300) for _ in range(60)]
    return "\n\n".join(f"{writer.heading()}\n\n{writer.words(length, length)}." for length in lengths)


DOCUMENT = Writer(1).document(300_000)
PARAGRAPHS = "\n\n".join(Writer(2).paragraph() for _ in range(200))
LINE = Writer(3).line(60_000)
UNSPACED = re.sub(r"\W", "", Writer(4).line(60_000))
ASIAN_LINE = "".join(Writer(5).japanese() for _ in range(1_000))
INSERTED = "Nobody expected this paragraph. It says something new, and then it says it once more."

title = st.sampled_from(["One", "Two words", "三つ", "`code`", "C#", "1. Ten"])
prose = st.lists(st.sampled_from(["word", "Sentence.", "文字。", "é", "🙂", "a-b", "x" * 40]), min_size=1).map(" ".join)
block = st.one_of(
    st.builds("{} {}".format, st.sampled_from(["#", "##", "###", "######"]), title),
    st.builds("{} ##".format, title.map("## {}".format)),
    st.builds("{}\n{}".format, title.filter(lambda one: one != "1. Ten"), st.sampled_from(["===", "---"])),
    prose,
    st.lists(prose, min_size=2).map("\n".join),
    st.lists(prose.map("- {}".format)).map("\n".join),
    st.lists(prose, max_size=6).map(lambda lines: "\n".join(["```", "# no heading", *lines, "```"])),
    st.lists(prose, max_size=6).map(lambda lines: "\n".join(["~~~~ text", "```", "# no heading", *lines, "~~~~"])),
    st.lists(prose.map("| {} |".format), max_size=6).map(lambda rows: "\n".join(["| a |", "|---|", *rows])),
    st.sampled_from(["#hashtag", "    # indented", "> # quoted", "***", ""]),
)
markdown = st.lists(block, max_size=30).map("\n\n".join)
rough = st.lists(st.one_of(block, st.text(), st.sampled_from(["\r\n", "\t", "e\u0301" * 50, "```"])), max_size=20)
rules = st.sampled_from(RULES)


@given(text=st.text(), rules=rules)
def test_any_text_is_covered_by_chunks_that_fit(text: str, rules: ChunkingRules) -> None:
    assert_sound(text, rules)


@given(pieces=rough, glue=st.sampled_from(["", "\n", "\n\n", "\r\n", " "]), rules=rules)
def test_any_structure_is_covered_by_chunks_that_fit(pieces: list[str], glue: str, rules: ChunkingRules) -> None:
    assert_sound(glue.join(pieces), rules)


@pytest.mark.parametrize("rules", RULES, ids=str)
@pytest.mark.parametrize(
    "text",
    [
        "x" * 10_000,
        "x" * 1_000 + " " * 10_000 + "x",
        "x" + "\n" * 10_000 + "x",
        " " * 10_000 + "x" * 1_000,
        "字" * 10_000,
        "🙂" * 10_000,
        "👩‍👩‍👧‍👦" * 5_000,
        "e" + "\u0301" * 10_000,
        "\ud800" * 10_000,
        "\x00" * 10_000,
        "word " * 10_000,
        "word\r\n" * 10_000,
        "word\r" * 10_000,
        "# " + "word " * 10_000,
        "# x\n" * 5_000,
        "# x\n## x\n### x\n" * 2_000,
        "- x\n" * 5_000,
        "```\n" + "x = 1\n" * 10_000 + "```",
        "```\n" + "x" * 10_000,
        "```\n" * 10_000,
        "| x | y |\n|---|---|\n" + "| 1 | 2 |\n" * 10_000,
        "|---|\n" * 10_000,
        "| " + "x" * 10_000 + " |\n|---|",
        "---\n" * 10_000,
        ". " * 10_000,
        "。" * 10_000,
    ],
    ids=lambda text: f"{text[:9]!r}*{len(text)}",
)
def test_any_unusual_text_can_be_split(text: str, rules: ChunkingRules) -> None:
    assert_sound(text, rules)


def test_a_line_of_a_megabyte_is_cut() -> None:
    assert_sound("x" * 1_000_000, USUAL)


@given(text=st.text(" \t\r\n\f\u3000\u2028\x1f"))
def test_white_space_makes_no_chunks(text: str) -> None:
    assert split_into_chunks(text, USUAL) == []


@pytest.mark.parametrize(("size", "overlap"), [(15, 0), (0, 0), (512, -1), (512, 171), (512, 512)])
def test_invalid_chunk_sizes_and_overlaps_are_refused(size: int, overlap: int) -> None:
    with pytest.raises(BadSettings, match=r"[.]$"):
        ChunkingRules(size=size, overlap=overlap)


clusters = ["a", "e\u0301", "o\u0302\u0323", "か\u3099", "字", "🙂", "👍🏽", "👩‍👩‍👧‍👦", "क\u093f"]


@pytest.mark.parametrize("more", [[], ["。", "。\u0301"]], ids=["words", "sentences"])
@given(data=st.data())
@settings(max_examples=50)
def test_a_combining_mark_stays_with_its_character(more: list[str], data: st.DataObject) -> None:
    characters = data.draw(st.lists(st.sampled_from([*clusters, *more]), min_size=100, max_size=300))
    starts = set(accumulate(map(len, characters), initial=0))
    for chunk in split_into_chunks("".join(characters), ChunkingRules(size=64, overlap=16)):
        assert {chunk.start, chunk.own_start} <= starts


def test_a_line_end_of_two_characters_is_not_split() -> None:
    text = "Some words here, and more.\r\n" * 500
    assert all(text[place - 1 : place + 1] != "\r\n" for chunk in split_into_chunks(text, SMALL) for place in chunk[:2])


def cuts(text: str, rules: ChunkingRules = USUAL) -> list[str]:
    """Return the last visible character before each cut."""
    return [one.rstrip()[-1] for one in owns(text, rules)[:-1]]


@pytest.mark.parametrize(("text", "ends"), [(LINE, "."), (ASIAN_LINE, "。"), (LINE.replace(".", "!"), "!")])
def test_a_text_without_lines_is_cut_between_sentences(text: str, ends: str) -> None:
    assert set(cuts(text)) == {ends}


def test_a_cut_falls_between_paragraphs_rather_than_inside_one() -> None:
    text = "\n\n".join(Writer(6).sentence() + " " + Writer(7).sentence() for _ in range(500))
    assert all(text[chunk.own_start - 2 : chunk.own_start] == "\n\n" for chunk in split_into_chunks(text, USUAL)[1:])


def test_words_are_not_split() -> None:
    text = " ".join(Writer(8).words(20_000, 20_000).split())
    assert all(
        text[chunk.own_start - 1] == " " == text[chunk.start - 1] for chunk in split_into_chunks(text, USUAL)[1:]
    )


def test_wrapped_lines_are_cut_between_sentences_not_at_line_ends() -> None:
    text = re.sub(r"(.{60}\S*) ", r"\1\n", LINE)
    assert set(cuts(text)) == {"."}


def test_a_full_stop_before_a_lowercase_letter_ends_no_sentence() -> None:
    writer = Writer(14)
    text = " ".join(f"{writer.words(3, 9).capitalize()} approx. {writer.words(3, 9)} there." for _ in range(500))
    assert {one.rsplit(" ", 1)[-1] for one in owns(text)} == {"there."}


def test_lines_without_sentences_are_cut_at_line_ends() -> None:
    text = "\n".join(Writer(seed).words(3, 9) for seed in range(2_000))
    assert all(text[chunk.own_start - 1] == "\n" for chunk in split_into_chunks(text, USUAL)[1:])


@pytest.mark.parametrize("make", [Writer.code, Writer.table])
def test_code_and_tables_that_fit_are_kept_whole(make: Callable[[Writer], str]) -> None:
    writer = Writer(9)
    wholes = [make(writer) for _ in range(200)]
    text = "\n\n".join(f"{writer.paragraph()}\n\n{whole}" for whole in wholes)
    chunks = owns(text)
    assert max(map(estimate_tokens, wholes)) > USUAL.size // 3
    assert all(any(whole in chunk for chunk in chunks) for whole in wholes if estimate_tokens(whole) <= USUAL.size)


@pytest.mark.parametrize("fence", ["```", "~~~"])
def test_code_that_does_not_fit_is_cut_at_line_ends(fence: str) -> None:
    lines = [f"let x{number} = {number}; # {number}" for number in range(3_000)]
    text = "\n".join(["# Code", "", fence, *lines, fence])
    chunks = owns(text)
    assert all(re.search(r"\d$", one) for one in chunks[:-1])
    assert chunks[0].startswith(f"# Code\n\n{fence}\nlet x0 ")
    assert chunks[-1].endswith(f"# 2999\n{fence}")
    assert len(chunks[-1].splitlines()) > 2


def test_a_table_that_does_not_fit_is_cut_between_rows_and_keeps_its_header() -> None:
    text = "| a | b |\n|---|---|\n" + "".join(f"| row {number} | {number * 7} |\n" for number in range(2_000))
    chunks = owns(text)
    assert all(one.startswith("|") and one.endswith("|") for one in chunks)
    assert chunks[0].startswith("| a | b |\n|---|---|\n| row 0 ")


def test_list_items_are_kept_whole() -> None:
    text = "\n".join(f"- {Writer(seed).sentence()} {Writer(seed + 1).sentence()}" for seed in range(1_000))
    assert all(one.startswith("- ") for one in owns(text))


@pytest.mark.parametrize("announced", [Writer.code, Writer.paragraph, Writer.items])
def test_a_line_that_ends_with_a_colon_stays_with_the_block_after_it(announced: Callable[[Writer], str]) -> None:
    writer = Writer(10)
    text = "\n\n".join(f"{writer.sentence()}\n\n{writer.words(2, 4)}:\n\n{announced(writer)}" for _ in range(150))
    assert not any(one.endswith(":") for one in owns(text, ChunkingRules(size=1024)))


@pytest.mark.parametrize("make", [Writer.code, Writer.table])
def test_code_and_tables_stay_with_the_text_before_them(make: Callable[[Writer], str]) -> None:
    writer = Writer(13)
    text = "\n\n".join(f"{writer.sentence()}\n\n{writer.sentence()}\n\n{make(writer)}" for _ in range(100))
    assert not any(one.startswith(("```", "|")) for one in owns(text, ChunkingRules(size=1024)))


@pytest.mark.parametrize("head", ["| a | b |\n|---|---|", "```text"])
def test_the_opening_line_of_code_or_the_header_of_a_table_does_not_end_a_chunk(head: str) -> None:
    for words in range(20, 260, 2):
        rows = [f"| row {number} of {words} | {'cell ' * 80} |\n" for number in range(20)]
        text = f"{Writer(words).words(words, words)}\n\n{head}\n{''.join(rows)}"
        assert not any(one.endswith(("---|", "b |", "text")) for one in owns(text))


def headings_of(text: str) -> list[tuple[int, int, str]]:
    """Find offset, level and title of every heading with a simple line-by-line parser."""
    found, fence, offset, above, blank = [], "", 0, "", True
    for line in text.splitlines(keepends=True):
        bare = line.strip()
        if fence:
            fence = "" if bare.startswith(fence) and not bare.strip(fence[0]) else fence
            bare = ""
        elif mark := re.match(r"`{3,}|~{3,}", bare):
            fence, bare = mark[0], ""
        elif heading := re.match(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?\s*$", line):
            found.append((offset, len(heading[1]), heading[2] or ""))
            bare = ""
        elif re.fullmatch("=+|-+", bare) and above and blank:
            found.append((offset - len(above) - 1, 1 if "=" in bare else 2, above))
            bare = ""
        above, blank = (bare, not above) if bare else ("", True)
        offset += len(line)
    return found


def path_at(place: int, headings: list[tuple[int, int, str]]) -> tuple[str, ...]:
    path: list[tuple[int, str]] = []
    for offset, level, name in headings:
        if offset <= place:
            path = [one for one in path if one[0] < level]
        if offset < place:
            path.append((level, name))
    return tuple(name for _, name in path)


@given(text=markdown, rules=rules)
@settings(max_examples=300)
def test_headings_match_those_of_a_simple_line_by_line_parser(text: str, rules: ChunkingRules) -> None:
    headings = headings_of(text)
    assert [chunk.headings for chunk in split_into_chunks(text, rules)] == [
        path_at(chunk.own_start + len(own(text, chunk)) - len(own(text, chunk).lstrip()), headings)
        for chunk in split_into_chunks(text, rules)
    ]


def test_headings_are_found_in_the_long_document() -> None:
    headings = headings_of(DOCUMENT)
    assert len(headings) > 80
    assert all(chunk.headings == path_at(chunk.own_start, headings) for chunk in split_into_chunks(DOCUMENT, USUAL))


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("# A\n\n## B ##\n\n{}", ("A", "B")),
        ("A\n===\n\nB\n---\n\n{}", ("A", "B")),
        ("A\nover two lines\n===\n{}", ("A over two lines",)),
        ("# A\n### C\n## B\n{}", ("A", "B")),
        ("# A\r\n\r\n## B\r\n\r\n{}", ("A", "B")),
        ("# A\n\n```\n# B\n```\n\n{}", ("A",)),
        ("# A\n\n~~~~\n~~~\n# B\n~~~~\n\n{}", ("A",)),
        ("# A\n\n- item\n\n  ```\n  # B\n  ```\n\n{}", ("A",)),
        ("# A\n\n``` inline ```\n\n## B\n\n{}", ("A", "B")),
        ("---\ntitle: x\n---\n\n# A\n\n{}", ("A",)),
        ("# A\n\n***\n---\n\n{}", ("A",)),
        ("#\n\n## B\n\n{}", ("B",)),
        ("# " + "A" * 5_000 + "\n\n{}", ("A" * 200,)),
        ("#A\n\n    # B\n\n> # C\n\n{}", ()),
    ],
)
def test_the_last_chunk_of_a_section_has_the_headings_of_the_section(text: str, path: tuple[str, ...]) -> None:
    assert split_into_chunks(text.format(PARAGRAPHS[:20_000]), USUAL)[-1].headings == path


def test_a_heading_that_begins_a_chunk_is_not_in_the_heading_path_of_the_chunk() -> None:
    text = f"# A\n\n{LINE[:800]}\n\n## B\n\n{LINE[:800]}\n\n## C\n\n{LINE[:800]}"
    assert [(own(text, one)[:4].strip("# \n"), one.headings) for one in split_into_chunks(text, USUAL)] == [
        ("A", ()),
        ("B", ("A",)),
        ("C", ("A",)),
    ]


@given(seed=st.integers(0, 10_000), rules=st.sampled_from([USUAL, ChunkingRules(size=128, overlap=32)]))
@settings(max_examples=60)
def test_no_chunk_ends_with_a_heading_that_has_text(seed: int, rules: ChunkingRules) -> None:
    text = sections(seed)
    assert not any(one.splitlines()[-1].startswith("#") for one in owns(text, rules))


@pytest.mark.parametrize("letters", range(0, 100, 4))
def test_a_heading_stays_with_code_that_fills_a_chunk(letters: int) -> None:
    code = "```\n" + "x = 1 + 2 + 3\n" * 73 + "y" * letters + "\n```"
    text = f"## A heading\n\n{code}\n\nThe end."
    assert 500 < estimate_tokens(code) < 535
    assert owns(text)[0].startswith("## A heading\n\n```\nx = 1")


def test_a_heading_stays_with_code_rather_than_with_the_tiny_section_before_it() -> None:
    code = "```\n" + "x = 1 + 2 + 3\n" * 68 + "```"
    tiny, long = f"## Tiny\n\n{LINE[:160]}", f"## Long\n\n{code}"
    assert owns(f"{tiny}\n\n{long}") == [tiny, long]


def test_a_short_section_is_a_chunk_of_its_own() -> None:
    sections = [f"## Section {number}\n\n{Writer(number).line(700)}" for number in range(50)]
    assert owns("\n\n".join(sections)) == sections


def test_tiny_sections_share_a_chunk() -> None:
    sections = [f"## Section {number}\n\n{Writer(number).line(100)}" for number in range(50)]
    chunks = owns("\n\n".join(sections))
    assert len(chunks) < 12
    assert all(one.startswith("## Section") for one in chunks)


def test_a_tiny_section_does_not_join_a_section_of_a_higher_level() -> None:
    text = f"# A\n\n{LINE[:900]}\n\n## Tiny\n\nA word.\n\n# B\n\n{LINE[:900]}"
    assert [one[:7].split("\n")[0] for one in owns(text)] == ["# A", "## Tiny", "# B"]


def test_a_title_shares_a_chunk_with_the_first_section() -> None:
    assert len(owns(f"# Title\n\n## Chapter\n\n### Section\n\n{LINE[:1000]}")) == 1


def test_a_chunk_repeats_the_last_sentences_of_the_one_before() -> None:
    chunks = split_into_chunks(LINE, USUAL)
    repeated = [LINE[chunk.start : chunk.own_start] for chunk in chunks[1:]]
    assert sum(map(bool, repeated)) > len(repeated) * 0.7
    assert all(one == "" or (one[0].isupper() and one.endswith(". ")) for one in repeated)


def test_a_chunk_repeats_part_of_a_sentence_only_if_the_cut_is_inside_it() -> None:
    endless = " ".join(Writer(12).words(600, 600).split())
    text = "\n\n".join(f"Endless {endless}. {Writer(seed).sentence()}" for seed in range(30))
    for chunk in split_into_chunks(text, USUAL):
        assert not text[chunk.own_start].isupper() or text[chunk.start].isupper()


@given(seed=st.integers(0, 10_000), rules=st.sampled_from([USUAL, ChunkingRules(size=128, overlap=40)]))
@settings(max_examples=60)
def test_a_chunk_repeats_nothing_across_a_heading(seed: int, rules: ChunkingRules) -> None:
    text = sections(seed)
    for chunk in split_into_chunks(text, rules):
        assert "#" not in text[chunk.start : chunk.own_start]
        assert text[chunk.own_start] != "#" or chunk.start == chunk.own_start


def test_with_overlap_zero_a_chunk_repeats_nothing() -> None:
    assert all(chunk.start == chunk.own_start for chunk in split_into_chunks(DOCUMENT, ChunkingRules(overlap=0)))


def paragraph_starts(text: str) -> list[int]:
    """Return where paragraphs begin. Code is left out; so are headings, because every chunk below carries them."""
    return [match.end() for match in re.finditer(r"\n\n(?=[A-Z文書検索].*\n\n)", text)]


def inserted(text: str, place: int) -> str:
    return f"{text[:place]}{INSERTED}\n\n{text[place:]}"


def deleted(text: str, place: int) -> str:
    return text[:place] + text[text.find("\n\n", place) + 2 :]


def reworded(text: str, place: int) -> str:
    return text[:place] + re.sub(r"\w{2,4}", "Changed", text[place:], count=1)


EDITS = [inserted, deleted, reworded]


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("text", [DOCUMENT, PARAGRAPHS, DOCUMENT.replace("\n", "\r\n").replace("\r\n\r\n", "\n\n")])
@pytest.mark.parametrize("part", [0.0, 0.13, 0.37, 0.5, 0.77, 0.97])
def test_an_edit_changes_at_most_six_chunks(text: str, edit: Callable[[str, int], str], part: float) -> None:
    starts = paragraph_starts(text)
    assert changed(text, edit(text, starts[int(part * len(starts))])) <= 6


@given(place=st.floats(0, 1, exclude_max=True), edit=st.sampled_from(EDITS))
@settings(max_examples=50)
def test_an_edit_anywhere_changes_at_most_six_chunks(place: float, edit: Callable[[str, int], str]) -> None:
    starts = paragraph_starts(PARAGRAPHS)
    assert changed(PARAGRAPHS, edit(PARAGRAPHS, starts[int(place * len(starts))])) <= 6


@pytest.mark.parametrize(
    "text", [LINE, ASIAN_LINE, UNSPACED, LINE.replace(".", "")], ids=["a", "文", "unspaced", "words"]
)
@given(
    part=st.floats(0, 1, exclude_max=True), removed=st.integers(0, 500), added=st.text("New Words.文字", max_size=300)
)
@settings(max_examples=25)
def test_an_edit_of_an_endless_line_changes_at_most_six_chunks(
    text: str, part: float, removed: int, added: str
) -> None:
    place = int(part * len(text))
    assert changed(text, text[:place] + added + text[place + removed :]) <= 6


@pytest.mark.parametrize(
    "text",
    [
        "The same paragraph, again and again.\n\n" * 2_000,
        "| a | b |\n|---|---|\n" + "| 1 | 2 |\n| 3 | 4 |\n| 5 | 6 |\n" * 2_000,
        "\n\n".join(f"The paragraph number {number % 7}, which comes again." for number in range(2_000)),
        "The same sentence. And another one. " * 2_000,
        "x" * 100_000,
        "```\n" + "}\n\n" * 10_000 + "```",
    ],
    ids=lambda text: text[:12],
)
@pytest.mark.parametrize("part", [0.0, 0.4, 0.9])
def test_an_edit_of_a_text_that_repeats_itself_changes_at_most_six_chunks(text: str, part: float) -> None:
    place = int(part * len(text))
    assert changed(text, f"{text[:place]}Something else.{text[place:]}") <= 6


def test_a_renamed_heading_changes_only_chunks_under_it() -> None:
    chapters = [f"## Chapter {number}\n\n{Writer(number).document(4_000)[16:]}" for number in range(20)]
    text = "\n\n".join(one.replace("\n# ", "\n### ").replace("\n## ", "\n### ") for one in chapters)
    renamed = text.replace("Chapter 7", "The Seventh")
    lost = identities(text) - identities(renamed)
    assert lost
    assert all("Chapter 7" in (*headings, chunk[:12].strip("# ")) for chunk, headings in lost)


def test_the_same_text_gives_these_chunks_on_every_machine() -> None:
    """A change of this checksum means that every document is embedded, and paid for, again."""
    places = [(chunk.start, chunk.own_start, chunk.end) for chunk in split_into_chunks(DOCUMENT, USUAL)]
    assert zlib.crc32(repr(places).encode()) == 3483575894
    assert split_into_chunks(DOCUMENT, USUAL) == split_into_chunks("".join(list(DOCUMENT)), USUAL)


@pytest.mark.parametrize(
    "text", [PARAGRAPHS, LINE, ASIAN_LINE, UNSPACED], ids=["paragraphs", "line", "asian", "unspaced"]
)
@pytest.mark.parametrize("size", [128, 512, 1024])
def test_chunks_of_flowing_text_are_well_filled(text: str, size: int) -> None:
    lengths = [estimate_tokens(one) for one in owns(text, ChunkingRules(size=size, overlap=size // 8))]
    assert sum(lengths) / len(lengths) >= 0.6 * size
    assert min(lengths[:-1]) > size // 5


@given(texts=st.lists(st.text(), max_size=5))
def test_the_weight_of_joined_texts_is_the_sum_of_their_weights(texts: list[str]) -> None:
    assert weigh("".join(texts)) == sum(map(weigh, texts))
    assert weigh("".join(texts) * 1000) == 1000 * sum(map(weigh, texts))


@given(text=st.text(st.characters(exclude_categories=())))
def test_every_character_has_one_weight(text: str) -> None:
    assert list(character_weights(text)) == list(map(weigh, text))


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("a", 1), ("word", 1), ("文", 2), ("文" * 1000, 1125), ("1234", 4), ("🙂", 3), (" ", 1)],
)
def test_an_estimate_is_rounded_up(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


def test_the_estimate_is_close_to_the_count_of_a_tokenizer_on_our_own_docs() -> None:
    package = find_spec("wordllama")
    assert package
    assert package.origin
    tokenizer = Tokenizer.from_file(
        str(Path(package.origin).parent / "tokenizers" / "l2_supercat_tokenizer_config.json")
    )
    tokenizer.no_truncation()
    text = "\n".join(path.read_text() for path in sorted(Path(__file__).parents[2].glob("docs/**/*.md")))
    counted = len(tokenizer.encode(text, add_special_tokens=False).ids)
    assert len(text) > 10_000
    assert 0.9 < estimate_tokens(text) / counted < 1.2
