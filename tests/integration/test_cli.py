"""Runs the commands in one process and checks their output and exit codes."""

from __future__ import annotations

import ast
import json
import re
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast import cli
from holdfast.cli.app import app
from holdfast.cli.format import format_cell
from holdfast.settings import ENV_PREFIX
from tests.support.command_lines import parse
from tests.support.paid_provider import CUT, REFUSED, PaidProvider
from tests.support.question_harness import sections

ESCAPE = "\x1b"


class Typed:
    """Runs commands on a library in its own folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        (folder / "files").mkdir()

    def __call__(self, *words: object, end: int = 0, given: str | None = None) -> Any:
        """Run a command and assert its exit code."""
        ran = CliRunner().invoke(
            app, [str(word) for word in words], input=given, env={f"{ENV_PREFIX}HOME": str(self.home), "NO_COLOR": None}
        )
        assert ran.exit_code == end, f"{words}: {ran.exit_code}\n{ran.stdout}\n{ran.stderr}\n{ran.exception!r}"
        assert ESCAPE not in ran.stdout + ran.stderr
        return ran

    def json(self, *words: object, end: int = 0) -> Any:
        """Run a command with --json and parse its output."""
        return json.loads(self(*words, "--json", end=end).stdout)

    def file(self, name: str, text: str) -> Path:
        path = self.folder / "files" / name
        path.write_text(text)
        return path


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Typed:
    """Return a library with two documents: 1 about anchors, 2 about knots."""
    made = Typed(tmp_path_factory.mktemp("cli"))
    anchors = made.file("anchors.md", "# Anchors\n\nAn anchor holds a ship fast.\n")
    knots = made.file("knots.txt", "The bowline is a knot that does not slip.")
    ran = made("add", anchors, knots)
    assert "Created base 'default', because it did not exist." in ran.stderr
    assert {line.split("\t")[2] for line in ran.stdout.splitlines()} == {"ready"}
    return made


@pytest.fixture
def fresh(tmp_path: Path) -> Typed:
    return Typed(tmp_path)


PLACEHOLDERS = {"FILE", "NAME", "URL"}  # in a hint, for what only the user knows
COMMAND = re.compile(r"(?:: |\t)(holdfast .+)$", re.MULTILINE)


def hints(ran: Any) -> list[list[str]]:
    """Return the commands in the output, split as a shell splits them."""
    return [shlex.split(one)[1:] for one in COMMAND.findall(ran.stdout + ran.stderr)]


def test_every_printed_hint_is_a_valid_command(fresh: Typed) -> None:
    """Uses a base whose name needs quotes and a library that only --home selects."""
    here = ["--home", fresh.folder / "a library"]
    base = ["--base", "my base"]
    bad = fresh.file("bad.md", " ")
    good = fresh.file("good.md", "# Buoys\n\nA buoy floats.")
    (fresh.folder / "files" / "sub folder").mkdir()
    typed: list[tuple[list[Any], int]] = [
        (["base", "ls"], 0),
        (["ls", *base], 3),
        (["queue", "ls"], 0),
        (["ls", *base], 0),
        (["ls", "--status", "ready", *base], 0),
        (["queue", "ls", "--state", "queued", *base], 0),
        (["search", "buoy", *base], 0),
        (["base", "set", "my base"], 2),
        (["add", bad, good, *base], 5),
        (["add", good, fresh.file("c.md", "# C\n\nc."), "--no-wait", *base, "--on-duplicate", "replace"], 0),
        (["add", fresh.file("d.md", "# D\n\nd."), "--no-wait", *base], 0),
        (["add", fresh.folder / "files" / "sub folder", *base], 2),
        (["retry", "1", *base], 1),
        (["search", "buoy", *base], 0),
        (["ask", "what floats?", *base], 0),
        (["show", "99", *base], 3),
        (["status", "0" * 32, *base], 3),
        (["cards", "ls", *base], 0),
        (["keys", "ls"], 0),
        (["webhooks", "ls"], 0),
        (["serve", "--host", "0.0.0.0", "--port", "0"], 1),  # noqa: S104 - the command refuses it, because there is no key
    ]
    ends = {"retry": 1}  # the retry fails again
    for words, end in typed:
        ran = fresh(*here, *words, end=end)
        found = hints(ran)
        assert found, f"{words} prints no hint:\n{ran.stdout}{ran.stderr}"
        for one in found:
            assert one[:2] == list(map(str, here))
            if PLACEHOLDERS.isdisjoint(one):
                fresh(*one, end=ends.get(one[2], 4 if one[2] == "cards" else 0))
            else:
                parse(shlex.join(["holdfast", *one]))


def test_no_command_is_written_into_a_message_by_hand() -> None:
    """Only `CommandContext.format_command` adds the options for library and base that a printed command needs."""
    for file in sorted(Path(cli.__file__).parents[1].rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert ": holdfast " not in node.value, f"{file.name}:{node.lineno}: {node.value}"


def test_refresh_reads_a_folder_again_and_refuses_an_upload(fresh: Typed) -> None:
    folder = fresh.folder / "books"
    folder.mkdir()
    (folder / "a.md").write_text("# Buoys\n\nA buoy floats.")
    fresh("sync", folder)
    (folder / "b.md").write_text("# Bells\n\nA bell rings.")
    assert fresh.json("search", "bell", "--channel", "fulltext")["hits"] == []
    assert "Refreshing: books" in fresh("refresh", "books").stderr
    assert [one["name"] for one in fresh.json("search", "bell", "--channel", "fulltext")["hits"]] == ["b.md"]
    (folder / "c.md").write_text("# Tides\n\nA tide turns.")
    assert [one["verdict"] for one in fresh.json("refresh", "--all")["replies"]] == ["accepted"]
    assert fresh.json("search", "tide", "--channel", "fulltext")["hits"]
    fresh("add", fresh.file("u.md", "# Ropes\n\nA rope holds."))
    assert "'u.md'" in fresh("refresh", "u.md", end=2).stderr
    assert "or use --all" in fresh("refresh", end=2).stderr
    assert "cannot be combined" in fresh("refresh", "books", "--all", end=2).stderr


def test_a_document_can_be_added_searched_shown_and_removed(fresh: Typed) -> None:
    assert fresh("add", fresh.file("a.md", "# Buoys\n\nA buoy floats.")).stdout == "1\ta.md\tready\t\n"
    assert "A buoy floats." in fresh("search", "buoy").stdout
    assert "holdfast show 1 --chunk 1" in fresh("ask", "what floats?").stdout
    assert "a.md\tfile\t23 B\tready" in fresh("ls").stdout
    assert fresh("show", "a.md", "--text").stdout == "# Buoys\n\nA buoy floats.\n"
    assert fresh.json("reindex", 1)["documents"][0]["generation"] == 2
    assert fresh("rm", 1, end=2).stderr == (
        "Delete a.md from base 'default'? This cannot be undone.\n"
        "holdfast: This command needs your confirmation, but it does not run in a terminal. "
        "Run it again with --yes. Nothing was changed.\n"
    )
    assert "Deleted: a.md" in fresh("rm", "a.md", "--yes").stderr
    assert fresh.json("ls") == {"items": [], "next_cursor": None, "total": 0, "total_is_exact": True}
    assert fresh.json("ls", "--deleting")["total"] == 0
    assert fresh.json("search", "buoy") == {"hits": [], "notices": []}


def test_adding_a_file_again_is_skipped_and_equal_content_under_a_new_name_is_refused(typed: Typed) -> None:
    assert typed.json("add", typed.folder / "files/knots.txt")["replies"][0]["verdict"] == "skipped"
    copy = typed.file("copy.txt", "The bowline is a knot that does not slip.")
    ran = typed("add", copy, end=4)
    assert "Rejected: copy.txt: This base already has a document with the same content. (document 2)" in ran.stderr
    (reply,) = typed.json("add", copy, end=4)["replies"]
    assert (reply["reason"], reply["document"]) == ("content_exists", 2)


def test_an_active_job_blocks_further_requests_and_is_named_in_the_reply(fresh: Typed) -> None:
    file = fresh.file("a.txt", "One.")
    (first,) = fresh.json("add", file, "--no-wait")["replies"]
    (again,) = fresh.json("add", file, "--no-wait", end=4)["replies"]
    assert (again["verdict"], again["job"], again["document"]) == ("joined", first["job"], 1)
    (refused,) = fresh.json("reindex", 1, "--no-wait", end=4)["replies"]
    assert (refused["reason"], refused["job"], refused["status"]) == ("not_terminal", first["job"], "queued")
    assert first["job"] in fresh("add", file, "--no-wait", end=4).stderr
    assert fresh.json("status", first["job"])["state"] == "queued"
    moved = fresh.json("queue", "priority", first["job"], 1)
    assert moved["verdict"] == "accepted"
    same = fresh.json("queue", "priority", first["job"], 1, end=4)
    assert same["error"]["code"] == "same_priority"
    assert same["error"]["job"] == first["job"]
    assert fresh.json("cancel", first["job"])["replies"][0]["verdict"] == "accepted"
    assert fresh.json("cancel", 1)["replies"][0]["reason"] == "nothing_active"
    assert fresh.json("retry", 1)["documents"][0]["status"] == "success"


def test_an_add_of_several_files_can_partly_fail(fresh: Typed) -> None:
    (one, two) = fresh.file("a.txt", "One."), fresh.file("b.txt", "One.")
    found = fresh.json("add", one, two, "--no-index", end=5)
    assert [reply["verdict"] for reply in found["replies"]] == ["accepted", "rejected"]
    assert found["documents"][0]["status"] == "not_indexed"


def test_an_unreadable_file_fails_with_a_reason_and_a_hint(fresh: Typed) -> None:
    broken = fresh.file("broken.pdf", "%PDF-1.7 and then nothing")
    ran = fresh("add", broken, end=1)
    assert ran.stdout.startswith("1\tbroken.pdf\tfailed\t")
    assert "holdfast retry --all" in ran.stderr
    assert fresh.json("retry", "--all", "--dry-run")["found"] == 1
    assert fresh.json("retry", "--all", end=1)["documents"][0]["status"] == "failed"


def test_a_truncated_answer_is_marked_as_cut_off(fresh: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    with PaidProvider() as paid:
        paid.reply = lambda _: "A buoy floats. [1]xx"
        monkeypatch.setenv(f"{ENV_PREFIX}CHAT_URL", paid.url)
        monkeypatch.setenv(f"{ENV_PREFIX}CHAT_MODEL", paid.chat_model)
        monkeypatch.setenv(f"{ENV_PREFIX}CHAT_KEY", paid.key)
        fresh("base", "create", "default", "indexes=fulltext")
        fresh("add", fresh.file("buoys.md", "# Buoys\n\nA buoy floats."))
        assert "cut off" not in fresh("ask", "What floats, a buoy?").stderr
        paid.always(CUT)
        assert "The answer was cut off" in fresh("ask", "Which buoy floats?").stderr
        assert fresh.json("ask", "Where does a buoy float?")["cut"]


def test_show_lists_missing_chunks_with_the_reason(fresh: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    with PaidProvider() as paid:
        monkeypatch.setenv(f"{ENV_PREFIX}EMBEDDING_URL", paid.url)
        monkeypatch.setenv(f"{ENV_PREFIX}EMBEDDING_MODEL", paid.embedding_model)
        monkeypatch.setenv(f"{ENV_PREFIX}EMBEDDING_KEY", paid.key)
        paid.refuses["poison"] = REFUSED
        fresh("base", "create", "default", "indexes=vector", "chunk_size=48", "chunk_overlap=0")
        fresh("add", fresh.file("parts.md", sections(20, but={4: "A poison."})), end=5)
        (lacked,) = fresh.json("show", 1)["missing"]
        assert (lacked["index"], lacked["ordinal"], lacked["problem"]["code"]) == ("vector", 4, "content_refused")
        told = fresh("show", 1).stdout
    assert f"missing in\tchunk\ttext\treason\nvector\t{lacked['chunk']}\t## Part 4 A poison." in told
    assert lacked["problem"]["message"] in told
    assert fresh.json("show", 1, "--chunk", lacked["chunk"])["text"].startswith("## Part 4")


def test_filters_select_documents_to_count_retry_reindex_and_remove(fresh: Typed) -> None:
    files = [fresh.file(name, "" if "empty" in name else name) for name in ("a.md", "b.md", "empty1.md", "empty2.txt")]
    files[3].write_text(" ")
    fresh("add", *files, end=5)
    assert fresh.json("retry", "--state", "failed", "--dry-run") == {
        "found": 2, "accepted": 0, "answers": {}, "dry_run": True, "jobs": []
    }  # fmt: skip
    tried = fresh.json("retry", "--state", "failed", end=1)
    assert (tried["summary"]["accepted"], {one["status"] for one in tried["documents"]}) == (2, {"failed"})
    assert fresh.json("reindex", "--text", ".md", "--dry-run")["found"] == 3
    assert fresh.json("reindex", "--text", "a.md")["documents"][0]["generation"] == 2
    assert fresh.json("cancel", "--kind", "file")["answers"] == {"skipped: nothing_active": 4}
    assert fresh.json("rm", "--state", "failed", "--text", "md", "--dry-run")["found"] == 1
    refused = fresh("rm", "--state", "failed", end=2).stderr
    assert "Delete 2 documents from base 'default'? This cannot be undone." in refused
    assert "Run it again with --yes." in refused
    assert fresh.json("rm", "--state", "failed", "--yes")["answers"] == {"accepted: delete": 2}
    assert {one["name"] for one in fresh.json("ls")["items"]} == {"a.md", "b.md"}
    assert fresh.json("rm", "--all", "--dry-run") == {"found": 2}
    assert fresh("rm", "--all", "--dry-run").stderr == "2 documents would be deleted. This was a dry run.\n"
    assert fresh("cancel", "--kind", "file").stderr.splitlines() == [
        "Cancelled: 0 of 2 documents", "Skipped: 2 documents (nothing active)"
    ]  # fmt: skip
    assert fresh("retry", "--all").stderr == "No documents to retry.\n"
    assert fresh.json("retry", "--deleting", "--no-wait")["found"] == 0


def test_a_clean_up_can_be_retried_by_document_id(fresh: Typed) -> None:
    fresh("add", fresh.file("a.md", "A buoy floats."))
    fresh("rm", 1, "--yes", "--no-wait")
    (refused,) = fresh.json("retry", 1, "--no-wait", end=4)["replies"]
    assert (refused["verdict"], refused["reason"]) == ("joined", "already_deleting")
    # As if the clean-up had just failed.
    with closing(sqlite3.connect(fresh.home / "holdfast.db")) as database, database:
        database.execute("UPDATE slots SET due_at = due_at + 3600000000, error_code = 'disk'")
    assert "Retrying: a.md" in fresh("retry", 1).stderr
    assert fresh.json("ls", "--deleting")["total"] == 0


def test_stdin_and_notes_take_the_given_name(fresh: Typed) -> None:
    assert fresh("add", "-", "--name", "in.md", given="From a pipe.").stdout == "1\tin.md\tready\t\n"
    assert fresh("add", "--note", "Remember.", "--name", "note").stdout == "2\tnote\tready\t\n"
    assert fresh("show", "in.md", "--original", "-").stdout == "From a pipe."
    assert "Choose one with --name NAME." in fresh("add", "-", end=2).stderr


JSON = [
    ("status",),
    ("status", 1),
    ("ls",),
    ("ls", "--tree"),
    ("ls", "--state", "success", "--text", "knot", "--order", "name", "--size", 1),
    ("show", 1),
    ("show", 1, "--text"),
    ("show", 1, "--chunks"),
    ("show", 1, "--chunk", 1),
    ("search", "knot", "--channel", "fulltext", "--limit", 1),
    ("ask", "what is a knot?", "--mode", "naive"),
    ("queue", "ls", "--state", "success"),
    ("queue", "pause"),
    ("queue", "stop"),
    ("queue", "resume"),
    ("base", "ls"),
    ("base", "show", "default"),
    ("base", "repair", "default"),
    ("cards", "status"),
    ("cards", "ls"),
    ("cards", "export"),
    ("keys", "ls"),
    ("webhooks", "ls"),
    ("doctor",),
    ("config", "show"),
    ("retry", "--all"),
    ("cancel", "--all", "--dry-run"),
]


@pytest.mark.parametrize("words", JSON, ids=lambda words: " ".join(map(str, words)))
def test_every_command_supports_json_and_quiet(typed: Typed, words: tuple[object, ...]) -> None:
    assert typed.json(*words) is not None
    assert typed(*words, "--quiet").stderr == ""


def test_common_options_can_precede_or_follow_the_command(typed: Typed) -> None:
    behind = typed.json("ls")
    assert json.loads(typed("--json", "ls").stdout) == behind
    assert json.loads(typed("--home", typed.home, "ls", "--json").stdout) == behind
    assert json.loads(typed("ls", "--at", typed.home, "--json").stdout) == behind
    assert "both name a library" in typed("ls", "--at", typed.home, "--home", typed.home, end=2).stderr


def test_a_status_can_be_filtered_by_the_printed_word_and_by_the_word_in_json(typed: Typed) -> None:
    assert "\tready\t" in typed("ls").stdout
    assert typed.json("ls", "--status", "ready") == typed.json("ls", "--state", "success")
    assert typed.json("ls", "--status", "ready")["total"] == 2
    assert typed.json("ls", "--status", "not_indexed", "--status", "ready")["total"] == 2


def test_an_empty_list_names_the_next_step(fresh: Typed) -> None:
    assert fresh("base", "ls").stderr == "No bases yet. Create one: holdfast base create default\n"
    assert fresh("queue", "ls").stderr == "No jobs yet. Add documents: holdfast add FILE\n"
    fresh("base", "create", "handbook")
    base = ("--base", "handbook")
    assert fresh("ls", *base).stderr == (
        "No documents in base 'handbook'. Add some: holdfast add FILE --base handbook\n"
    )
    assert fresh("ls", "--status", "failed", *base).stderr == (
        "No documents in base 'handbook' match. List all: holdfast ls --base handbook\n"
    )
    assert fresh("search", "buoy", *base).stderr.startswith("No results in base 'handbook'.")
    assert fresh("cards", "ls", *base).stderr == (
        "No cards in base 'handbook'. Generate them: holdfast cards generate --base handbook\n"
    )
    fresh("add", fresh.file("a.txt", "One."), "--no-index", *base)
    assert "Page 3 is empty." in fresh("ls", "--page", 3, *base).stderr


def test_an_unknown_name_or_id_ends_with_exit_code_3(typed: Typed) -> None:
    assert typed("ls", "--base", "nope", end=3).stderr.splitlines()[1:] == [
        "  List the bases: holdfast base ls", "  Create the base: holdfast base create nope"
    ]  # fmt: skip
    assert "No document 'nothing.txt' in base 'default'." in typed("show", "nothing.txt", end=3).stderr
    assert typed.json("ls", "--base", "nope", end=3)["error"]["code"] == "unknown_base"
    assert typed.json("show", "nothing.txt", end=3)["error"]["code"] == "unknown_document"
    assert typed.json("show", 99, end=3)["error"]["code"] == "unknown_document"
    assert typed.json("status", "0" * 32, end=3)["error"]["code"] == "unknown_job"
    assert typed.json("keys", "revoke", 99, end=3)["error"]["code"] == "unknown_key"
    assert (
        typed.json("add", typed.folder / "files/knots.txt", "--base", "nope", end=3)["error"]["code"] == "unknown_base"
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("add",), "names nothing to add"),
        (("add", "."), "Sync the folder instead: holdfast sync ."),
        (("add", "no-such-file"), "No file at 'no-such-file'"),
        (("retry",), "use --all"),
        (("rm", 1, "--all", "--yes"), "Names, --all and filters cannot be combined."),
        (("rm", "--all", "--state", "failed", "--yes"), "Names, --all and filters cannot be combined."),
        (("retry", 1, "--dry-run"), "needs --all or a filter"),
        (("base", "set", "default", "chunk_size"), "KEY=VALUE"),
        (("search", "x", "--limit", 0), "'--limit'"),
        (("ls", "--state", "sleeping"), "sleeping"),
        (("show", 1, "--text", "--chunks"), "--chunk and --original cannot be combined"),
    ],
)
def test_invalid_arguments_are_a_usage_error(typed: Typed, words: tuple[object, ...], sentence: str) -> None:
    assert sentence in typed(*words, end=2).stderr


def test_an_ambiguous_name_is_refused(fresh: Typed) -> None:
    folder = fresh.folder / "tree"
    for below, text in (("x", "One."), ("y", "Two.")):
        (folder / below).mkdir(parents=True)
        (folder / below / "same.txt").write_text(text)
    fresh("sync", folder)
    ids = {fresh.json("ls", folder)["items"][0]["id"]: f"tree/{folder}/same.txt" for folder in ("x", "y")}
    refused = fresh("show", "same.txt", end=2).stderr
    assert "2 documents in base 'default' are named 'same.txt'. Use the id of one of them: " in refused
    assert all(f"{number} ({path})" in refused for number, path in ids.items())


def test_control_characters_in_a_name_are_replaced() -> None:
    strange = "\N{REPLACEMENT CHARACTER}"
    assert format_cell("red\x1b[31m\nbell\x07\u202e") == f"red{strange}[31m bell{strange}{strange}"


def test_a_dry_run_of_sync_lists_the_changes_first(fresh: Typed) -> None:
    folder = fresh.folder / "files"
    fresh.file("a.txt", "One.")
    fresh("base", "create", "default")
    assert fresh("sync", folder, "--dry-run").stdout == "added\ta.txt\n"
    assert fresh("sync", folder).stdout == "1\tfiles\tready\t\n"
    (folder / "a.txt").unlink()
    fresh.file("b.txt", "Two.")
    assert fresh.json("sync", folder, "--dry-run")["removed"] == ["a.txt"]
    assert fresh.json("sync", folder)["counts"]["documents"] == 1
    assert [one["name"] for one in fresh.json("ls", "--tree")["items"]] == ["files", "b.txt"]
    assert "  b.txt" in fresh("ls", "--tree").stdout
    assert [hit["name"] for hit in fresh.json("search", "Two", "--below", "files")["hits"]] == ["b.txt"]


def test_a_base_can_be_created_changed_renamed_cleared_and_deleted(fresh: Typed) -> None:
    fresh("base", "create", "notes", "chunk_size=300", "indexes=fulltext")
    settings = fresh.json("base", "set", "notes", "budget_tokens=1000", "auto_index=false")["settings"]
    assert settings["indexes"] == ["fulltext"]
    assert (settings["chunk_size"], settings["budget_tokens"], settings["auto_index"]) == (300, 1000, False)
    assert fresh.json("base", "set", "notes", "budget_tokens=none")["settings"]["budget_tokens"] is None
    assert fresh.json("base", "set", "notes", "colour=red", end=1)["error"]["code"] == "bad_settings"
    assert fresh.json("base", "create", "notes", end=4)["error"]["code"] == "name_taken"
    fresh("base", "rename", "notes", "more")
    fresh("add", fresh.file("a.txt", "One."), "--base", "more")
    assert fresh.json("base", "show", "more")["counts"]["documents"] == 1
    fresh("base", "clear", "more", end=2)
    fresh("base", "clear", "more", "--yes")
    assert fresh.json("base", "show", "more")["counts"]["documents"] == 0
    fresh("base", "delete", "more", "--yes")
    assert fresh.json("base", "ls") == []


def test_status_shows_a_paused_base_until_it_resumes(fresh: Typed) -> None:
    fresh("base", "create", "default")
    assert fresh.json("queue", "pause", "--base", "default")["changed"] is True
    assert fresh.json("status")["queue"]["paused_bases"] == ["default"]
    assert "Base 'default' was already paused." in fresh("queue", "pause", "--base", "default").stderr
    assert fresh.json("queue", "resume", "--base", "default")["changed"] is True
    assert fresh.json("status")["queue"]["paused_bases"] == []


def test_the_secret_of_a_key_or_webhook_is_printed_once(fresh: Typed) -> None:
    fresh("base", "create", "notes")
    made = fresh.json("keys", "create", "me", "--scope", "write", "--base", "notes", "--days", 3)
    assert made["secret"].startswith("hf_")
    assert made["key"]["bases"] == ["notes"]
    assert made["secret"] not in fresh("keys", "ls").stdout
    assert fresh.json("keys", "revoke", made["key"]["id"])["revoked_at"] is not None
    other = fresh("keys", "create", "other")
    assert other.stdout.startswith("hf_")
    assert "with the scope read" in other.stderr
    hook = fresh.json("webhooks", "create", "https://example.org/hook", "--type", "document.added", "--base", "notes")
    assert hook["webhook"]["types"] == ["document.added"]
    number = hook["webhook"]["id"]
    assert fresh.json("webhooks", "rotate", number)["secret"] != hook["secret"]
    assert fresh.json("webhooks", "rotate-key") == {"webhooks": 1}
    assert fresh.json("webhooks", "disable", number)["enabled"] is False
    assert fresh.json("webhooks", "enable", number)["enabled"] is True
    assert fresh.json("webhooks", "deliveries", number)["items"] == []
    assert fresh.json("webhooks", "redeliver", 1, end=3)["error"]["code"] == "unknown_delivery"
    fresh("webhooks", "rm", number, "--yes")
    assert fresh.json("webhooks", "ls") == []


def test_a_base_can_be_exported_to_a_file_and_imported(fresh: Typed) -> None:
    fresh("add", fresh.file("a.md", "A buoy floats."))
    archive = fresh.folder / "base.archive"
    assert fresh.json("export", "default", archive, "--no-memos")["bytes"] == archive.stat().st_size
    assert fresh.json("import", archive, end=4)["error"]["code"] == "name_taken"
    assert fresh.json("import", archive, "--name", "other")["documents"] == 1
    assert fresh.json("search", "buoy", "--base", "other")["hits"][0]["name"] == "a.md"
    assert fresh.json("import", fresh.folder / "nothing", end=2)["error"]["code"] == "bad_request"
    assert fresh.json("export", "nope", fresh.folder / "x", end=3)["error"]["code"] == "unknown_base"


def test_settings_are_shown_with_their_origin_and_without_secrets(
    fresh: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_CHAT_KEY", "sk-very-secret")
    monkeypatch.setenv("HOLDFAST_DATABASE", "postgresql+psycopg://me:hush@db/holdfast")
    monkeypatch.setenv("HOLDFAST_KEY", "hf_not_a_setting")
    ran = fresh("config", "show", "--json")
    found = {one["name"]: one for one in json.loads(ran.stdout)}
    assert found["HOLDFAST_CHAT_KEY"] | {"meaning": ""} == {
        "name": "HOLDFAST_CHAT_KEY",
        "value": "********",
        "origin": "environment",
        "meaning": "",
    }
    assert found["HOLDFAST_DATABASE"]["value"] == "postgresql+psycopg://me:********@db/holdfast"
    assert found["HOLDFAST_WORKERS"]["origin"] == "default"


def test_settings_of_a_file_are_shown_with_its_path_and_without_secrets(
    fresh: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = fresh.file(
        "holdfast.toml",
        'workers = 3\nlease = "5m"\nsecret_key = "0123456789-0123456789-0123456789"\n'
        'database_direct = "postgresql+psycopg://me:hush@db/holdfast"\n',
    )
    monkeypatch.setenv("HOLDFAST_CONFIG", str(file))
    monkeypatch.setenv("HOLDFAST_LEASE", "4m")
    found = {one["name"]: (one["value"], one["origin"]) for one in fresh.json("config", "show")}
    assert found["HOLDFAST_WORKERS"] == (3, str(file))
    assert found["HOLDFAST_SECRET_KEY"] == ("********", str(file))
    assert found["HOLDFAST_DATABASE_DIRECT"] == ("postgresql+psycopg://me:********@db/holdfast", str(file))
    assert found["HOLDFAST_LEASE"] == (240.0, "environment")
    assert found["HOLDFAST_CONFIG"] == (str(file), "environment")
    assert found["HOLDFAST_HOME"][1] == "environment"
    assert found["HOLDFAST_PERIOD"][1] == "default"
    file.write_text("leese = 5")
    said = fresh("config", "show", end=1).stderr
    assert f"The settings file '{file}' contains 'leese', which is not a setting." in said


def test_doctor_exits_with_an_error_while_there_are_findings(fresh: Typed) -> None:
    fresh("add", fresh.file("a.txt", "One."))
    (blob,) = [one for one in (fresh.home / "files").rglob("*") if one.is_file()]
    blob.unlink()
    found = fresh.json("doctor", end=1)
    assert found[0]["count"] == 1
    assert found[0]["sentence"] in fresh("doctor", end=1).stdout


def test_deleted_data_is_erased_on_demand_and_both_stages_are_reported(fresh: Typed) -> None:
    fresh("add", fresh.file("a.txt", "The qzcanary4 sings."))
    (fresh.folder / "files" / "a.txt").unlink()
    fresh("rm", "1", "--yes")
    assert "--erase cannot be combined with --fix" in fresh("doctor", "--erase", "--fix", end=2).stderr
    with closing(sqlite3.connect(fresh.home / "holdfast.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM slots").fetchall()
        stages = fresh.json("doctor", "--erase", end=1)
        assert {stages[name]["obstacle"] for name in stages} == {"reader", None}
        assert not stages["compact"]["complete"]
        assert "read transaction" in fresh("doctor", "--erase", end=1).stdout
    ran = fresh("doctor", "--erase")
    assert [line.split("\t")[:2] for line in ran.stdout.splitlines()] == [
        ["overwrite", "complete"],
        ["compact", "complete"],
    ]
    stages = fresh.json("doctor", "--erase")
    assert [stages[name]["complete"] for name in ("overwrite", "compact")] == [True, True]
    files = [path for path in fresh.home.rglob("*") if path.is_file()]
    assert not [path for path in files if b"qzcanary4" in path.read_bytes()]


def test_cards_without_a_language_model_are_refused_with_a_reason(typed: Typed) -> None:
    assert typed.json("cards", "generate", end=4)["error"]["code"] == "not_enabled"
    assert typed.json("cards", "cancel", end=4)["error"]["code"]


def test_shell_completion_offers_the_names_of_bases(typed: Typed) -> None:
    ran = CliRunner().invoke(
        app,
        [],
        prog_name="holdfast",
        env={
            f"{ENV_PREFIX}HOME": str(typed.home),
            "_HOLDFAST_COMPLETE": "complete_bash",
            "COMP_WORDS": "holdfast ls --base de",
            "COMP_CWORD": "3",
        },
    )
    assert ran.stdout.split() == ["default"]


def test_shell_completion_survives_an_invalid_database(tmp_path: Path) -> None:
    (tmp_path / "holdfast.db").write_text("no database")
    with closing(sqlite3.connect(tmp_path / "holdfast.db")) as database, pytest.raises(sqlite3.DatabaseError):
        database.execute("SELECT 1 FROM sqlite_master")
    ran = CliRunner().invoke(
        app,
        [],
        prog_name="holdfast",
        env={
            f"{ENV_PREFIX}HOME": str(tmp_path),
            "_HOLDFAST_COMPLETE": "complete_bash",
            "COMP_WORDS": "holdfast ls --base d",
            "COMP_CWORD": "3",
        },
    )
    assert ran.stdout.split() == []


def test_an_unexpected_error_is_reported_without_a_traceback(fresh: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("oh")

    monkeypatch.setattr("holdfast.service.bases.LocalBases.list", broken)
    ran = fresh("base", "ls", "--json", end=1)
    assert "RuntimeError: oh" in json.loads(ran.stdout)["error"]["message"]
    assert "--debug" in ran.stderr
    assert "Traceback" not in ran.stderr
