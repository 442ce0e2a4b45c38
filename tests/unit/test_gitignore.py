"""Ignore patterns mean what git documents, and no pattern makes a scan slow."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.sources.gitignore import DEFAULT_PATTERNS, IgnoreFile, IgnoreRules


@pytest.mark.parametrize(
    ("lines", "path", "ignored"),
    [
        ("*.log", "a.log", True),
        ("*.log", "deep/er/a.log", True),
        ("/a.log", "b/a.log", None),
        ("b/a.log", "c/b/a.log", None),
        ("**/a.log", "c/b/a.log", True),
        ("b/**/a.log", "b/a.log", True),
        ("b/**/a.log", "b/c/d/a.log", True),
        ("b/**", "b", None),
        ("b/**", "b/c/d", True),
        ("\\/**", "b", None),
        ("b/**//", "b/c/", None),
        ("build/", "build", None),
        ("build/", "build/", True),
        ("*.log\n!a.log", "a.log", False),
        ("!a.log\n*.log", "a.log", True),
        ("# a\n\n\\#a", "#a", True),
        ("# a", "# a", None),
        ("\\!a", "!a", True),
        ("a  ", "a", True),
        ("a\\ ", "a ", True),
        ("a\r", "a", True),
        ("\ufeffa", "a", True),
        ("[a-c]x", "bx", True),
        ("[!a-c]x", "bx", None),
        ("[[:digit:]]", "7", True),
        ("[a", "[a", None),
        ("a?c", "abc", True),
        ("a?c", "a/c", None),
        ("a*c", "a/c", None),
        ("a[/b]c", "a/c", None),
        ("/a?c", "a/c", None),
        ("/a[!b]c", "a/c", None),
        ("a\\", "a\\", None),
        ("ab", "abc", None),
        ("!", "!", None),
        ("/", "a", None),
    ],
)
def test_a_pattern_means_what_git_documents(lines: str, path: str, ignored: bool | None) -> None:
    patterns = IgnoreFile.parse(lines.encode())
    assert patterns.verdict(path.rstrip("/").encode(), folder=path.endswith("/")) is ignored


@pytest.mark.parametrize(
    ("pattern", "path", "ignored"),
    [
        (b"\xe9*", b"\xe9t\xe9", True),  # Latin-1, which is not valid UTF-8
        (b"\xe9*", b"\xe8t", None),
        (b"[\xe8-\xea]", b"\xe9", True),
        (b"?", "é".encode(), None),  # git counts bytes
        (b"??", "é".encode(), True),
        (b"[!a]b", b"\xffb", True),
    ],
)
def test_names_are_bytes_as_in_git(pattern: bytes, path: bytes, ignored: bool | None) -> None:
    assert IgnoreFile.parse(pattern).verdict(path, folder=False) is ignored


@pytest.mark.parametrize(
    "name",
    [".env", "notes.txt~", "#notes.txt#", "~$report.docx", "a.swp", "Thumbs.db", "x.pyc", "a.crdownload", "a.tmp"],
)
def test_hidden_temporary_and_generated_files_are_ignored_by_default(name: str) -> None:
    assert DEFAULT_PATTERNS.verdict(name.encode(), folder=False)


@pytest.mark.parametrize("name", ["notes.txt", "#tag.md", "backup.md", "tmp.md", "a.pycon.txt"])
def test_documents_are_not_ignored_by_default(name: str) -> None:
    assert DEFAULT_PATTERNS.verdict(name.encode(), folder=False) is None


def test_a_gitignore_file_cannot_override_the_default_patterns_but_our_own_ignore_file_can() -> None:
    everything = IgnoreFile.parse(b"!*\n!*/")
    assert IgnoreRules(git=(everything,), defaults=(DEFAULT_PATTERNS,)).ignores(b".env", folder=False)
    assert not IgnoreRules(own=(everything,), defaults=(DEFAULT_PATTERNS,)).ignores(b".env", folder=False)


def test_the_ignore_file_in_the_deepest_folder_decides() -> None:
    top, deep = IgnoreFile.parse(b"*.log"), IgnoreFile.parse(b"!a.log", b"deep/")
    ignoring = IgnoreRules().with_subfolder(git=top).with_subfolder(git=deep)
    assert ignoring.ignores(b"deep/b.log", folder=False)
    assert not ignoring.ignores(b"deep/a.log", folder=False)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        (b"*a" * 100 + b"b", b"a" * 250),
        (b"**/a/" * 50 + b"b", b"a/" * 100 + b"c"),
        (b"*?" * 60 + b"b", b"a" * 250),
        (b"**/*a*/" * 40 + b"b", b"aaaa/" * 50 + b"c"),
    ],
)
def test_a_pattern_with_many_wildcards_is_matched_quickly(pattern: bytes, path: bytes) -> None:
    began = time.process_time()
    assert IgnoreFile.parse(pattern).verdict(path, folder=False) is None
    assert time.process_time() - began < 60  # backtracking would take years


@given(st.binary(max_size=60), st.binary(max_size=20))
def test_any_bytes_can_be_patterns(text: bytes, path: bytes) -> None:
    assert IgnoreFile.parse(text).verdict(path, folder=True) in {True, False, None}
