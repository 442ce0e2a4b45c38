"""The sandbox confines hostile files to its limits and reads real documents."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.content import reading
from holdfast.content import sandbox as cages
from holdfast.content.readers import documents
from holdfast.content.reading import ExtractedText, ReadLimits, open_sandbox, read
from holdfast.content.sandbox import Sandbox, SandboxReply
from holdfast.content.sandbox_child import DESCRIPTORS, MAX_OOM_SCORE, MAX_WRITTEN_FILE_BYTES, NICENESS
from holdfast.errors import Permanent, Transient, WorkError
from tests.support import samples
from tests.support.processes import ROOT, until
from tests.support.samples import SENTENCE, docx, epub, notebook, odp, odt, packed, pdf, pptx, xlsx
from tests.support.sandbox_tasks import KILLED, OUT_OF_TIME, SEGFAULT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.process_usage import ProcessUsage

MIB = 1 << 20
TARGET = "tests.support.sandbox_tasks:answer"
DOCUMENTS = Path(os.environ.get("TEST_DOCUMENTS", ROOT.parent / "shared/data/documents"))
GOOD = sorted((DOCUMENTS / "formats-good/files").glob("*"))
HOSTILE = sorted((DOCUMENTS / "formats-hostile/files").glob("*"))
UNREAD = 0.1  # the largest share of good files that may be unreadable


@pytest.fixture
def cage() -> Iterator[Sandbox]:
    """A sandbox with one child that executes test commands."""
    with Sandbox(TARGET) as cage:
        yield cage


def ask(
    cage: Sandbox, do: str, *, seconds: float = 60, memory: int = 1024 * MIB, most: int = MIB, **question: Any
) -> SandboxReply:
    return cage.call({"do": do, **question}, seconds=seconds, memory=memory, most=most)


def measure(cage: Sandbox, do: str, *, seconds: float = 60, **question: Any) -> ProcessUsage:
    """Return what the child used for one call, however it ended."""
    used: list[ProcessUsage] = []
    with suppress(WorkError):
        cage.call({"do": do, **question}, seconds=seconds, memory=1024 * MIB, most=MIB, report=used.append)
    (usage,) = used
    return usage


def pid(cage: Sandbox) -> int:
    return int(ask(cage, "tell").head["pid"])


def refusal(act: Callable[[], object]) -> WorkError:
    with pytest.raises(WorkError) as caught:
        act()
    return caught.value


def code(act: Callable[[], object]) -> str:
    error = refusal(act)
    assert isinstance(error, Permanent)
    return error.code


def gone(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"


class TestUsage:
    def test_a_caller_gets_the_memory_that_the_child_used_for_this_call(self, cage: Sandbox) -> None:
        ask(cage, "tell")
        large, small = measure(cage, "hog", bytes=100 * MIB), measure(cage, "tell")
        assert large.peak_kb - small.peak_kb > 90 * 1024

    def test_a_child_that_is_killed_still_reports_its_processor_time(self, cage: Sandbox) -> None:
        assert measure(cage, "spin", seconds=0.5).cpu_ms >= 200

    def test_a_call_that_is_repeated_in_a_new_child_reports_both(self, cage: Sandbox) -> None:
        used: list[ProcessUsage] = []
        ask(cage, "tell")
        with pytest.raises(WorkError):
            cage.call(
                {"do": "judge", "damaged": True, "sign": os.devnull},
                seconds=9,
                memory=MIB << 10,
                most=MIB,
                report=used.append,
            )
        assert len(used) == 2


class TestAnswers:
    def test_a_child_answers_several_calls(self, cage: Sandbox) -> None:
        assert ask(cage, "tell", say="heron").body == b"heron"
        assert pid(cage) == pid(cage)

    def test_a_refusal_is_returned_and_the_child_stays_usable(self, cage: Sandbox) -> None:
        before = pid(cage)
        error = refusal(lambda: ask(cage, "refuse"))
        assert (type(error), error.code) == (Permanent, "encrypted")
        assert "password" in str(error)
        assert pid(cage) == before

    def test_a_refusal_keeps_its_parameters_and_its_own_message(self, cage: Sandbox) -> None:
        ours = refusal(lambda: ask(cage, "refuse"))
        assert (str(ours), ours.params) == (str(Permanent("encrypted")), {})
        theirs = refusal(lambda: ask(cage, "refuse_with_a_message"))
        assert (theirs.code, str(theirs)) == ("plot_missing", "The plot has no soil.")
        assert theirs.params == {"message": "The plot has no soil.", "plot": "7"}

    def test_a_transient_error_stays_transient(self, cage: Sandbox) -> None:
        assert isinstance(refusal(lambda: ask(cage, "put_off")), Transient)

    def test_a_longer_answer_than_allowed_is_refused(self, cage: Sandbox) -> None:
        assert ask(cage, "tell", say="x" * 100, most=100)
        assert code(lambda: ask(cage, "tell", say="x" * 101, most=100)) == "reader_crashed"

    def test_an_invalid_answer_is_refused(self, cage: Sandbox) -> None:
        assert code(lambda: ask(cage, "nothing")) == "reader_crashed"


@pytest.fixture
def dumping() -> Iterator[None]:
    """Raise the soft core limit to the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


class TestConfinement:
    def test_a_child_does_not_inherit_the_environment(self, cage: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SECRET", "x")
        told = ask(cage, "tell").head
        assert set(told["environment"]) - {"LC_CTYPE"} == {"HOME", "TMPDIR"}  # Python sets LC_CTYPE itself
        assert not Path(told["environment"]["HOME"]).exists()  # removed after the start
        assert told["environment"]["TMPDIR"] == told["environment"]["HOME"]
        assert told["directory"] is None

    def test_a_child_prepares_in_our_temporary_folder_and_leaves_no_files(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        with Sandbox(TARGET, prepare="tests.support.sandbox_tasks:prepare") as cage:
            told = ask(cage, "tell").head
        assert Path(told["environment"]["TMPDIR"]).parent == tmp_path
        assert told["limits"]["file"] == MAX_WRITTEN_FILE_BYTES
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.usefixtures("dumping")
    def test_a_child_has_resource_limits(self, cage: Sandbox) -> None:
        told = ask(cage, "tell", seconds=50, memory=500 * MIB).head
        limits = told["limits"]
        assert (limits["core"], limits["file"], limits["descriptors"]) == (0, MAX_WRITTEN_FILE_BYTES, DESCRIPTORS)
        assert limits["data"] == 500 * MIB
        assert told["used"] < limits["cpu"] <= told["used"] + 53

    def test_limits_are_set_for_each_call(self, cage: Sandbox) -> None:
        assert ask(cage, "tell", memory=500 * MIB).head["limits"]["data"] == 500 * MIB
        assert ask(cage, "tell", memory=700 * MIB).head["limits"]["data"] == 700 * MIB

    def test_a_child_runs_at_low_priority(self, cage: Sandbox) -> None:
        assert ask(cage, "tell").head["niceness"] == min(os.nice(0) + NICENESS, 19)

    def test_a_child_has_the_highest_oom_score(self, cage: Sandbox) -> None:
        assert Path(f"/proc/{pid(cage)}/oom_score_adj").read_text().strip() == MAX_OOM_SCORE

    def test_a_child_cannot_write_large_files(self, cage: Sandbox, tmp_path: Path) -> None:
        path = str(tmp_path / "file")
        assert ask(cage, "write", path=path, bytes=MAX_WRITTEN_FILE_BYTES).head == {}
        assert ask(cage, "write", path=path, bytes=MAX_WRITTEN_FILE_BYTES + 1).head == {"error": errno.EFBIG}

    def test_a_child_that_takes_too_much_memory_is_replaced(self, cage: Sandbox) -> None:
        before = pid(cage)
        assert ask(cage, "hog", memory=200 * MIB, bytes=100 * MIB).head == {"taken": 100 * MIB}
        assert code(lambda: ask(cage, "hog", memory=200 * MIB, bytes=250 * MIB)) == "too_much_memory"
        assert pid(cage) != before

    def test_a_child_that_takes_too_long_is_replaced(self, cage: Sandbox) -> None:
        before = pid(cage)
        assert code(lambda: ask(cage, "spin", seconds=0.3)) == "too_slow"
        assert gone(before)
        assert pid(cage) != before

    def test_a_child_that_holds_the_interpreter_lock_is_killed_too(self, cage: Sandbox, tmp_path: Path) -> None:
        assert code(lambda: ask(cage, "stall", seconds=0.3, sign=str(tmp_path / "sign"))) == "too_slow"

    def test_processes_started_by_a_child_are_killed_with_it(self, cage: Sandbox, tmp_path: Path) -> None:
        sign = tmp_path / "sign"
        thread = threading.Thread(target=refusal, args=(lambda: ask(cage, "breed", sign=str(sign)),))
        thread.start()
        until(lambda: sign.exists() and sign.read_text(), "nothing was started")
        cage.close()
        thread.join()
        until(lambda: gone(int(sign.read_text())), "the grandchild lives")


class TestCrashes:
    @pytest.mark.parametrize(
        ("question", "expected"),
        [
            ({"do": "fail"}, "reader_crashed"),
            ({"do": "die", "signal": SEGFAULT}, "reader_crashed"),
            (
                {"do": "die", "signal": signal.SIGABRT, "saying": "memory allocation of 9 bytes failed"},
                "too_much_memory",
            ),
            ({"do": "die", "signal": OUT_OF_TIME}, "too_slow"),
        ],
    )
    def test_a_crash_reports_its_cause_and_the_child_is_replaced(
        self, cage: Sandbox, question: dict[str, Any], expected: str
    ) -> None:
        before = pid(cage)
        assert code(lambda: ask(cage, **question)) == expected
        assert pid(cage) != before

    def test_a_silent_death_with_full_memory_is_reported_as_out_of_memory(
        self, cage: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        os.mkfifo(gate := tmp_path / "gate")
        seen: list[int] = []

        def look(_: int) -> cages.ProcessMemory:
            """Let the child die after the first measurement."""
            if not seen:
                seen.append(1)
                gate.write_bytes(b"now")
            return cages.ProcessMemory(0, 700 * MIB)

        monkeypatch.setattr(cages, "_read_process_memory", look)
        assert code(lambda: ask(cage, "hesitate", gate=str(gate), memory=1000 * MIB)) == "too_much_memory"

    def test_a_child_killed_from_outside_is_a_transient_failure(self, cage: Sandbox) -> None:
        error = refusal(lambda: ask(cage, "die", signal=KILLED))
        assert (type(error), error.code) == (Transient, "reader_unavailable")

    def test_a_child_that_died_while_idle_is_replaced_without_an_error(self, cage: Sandbox) -> None:
        before = pid(cage)
        os.kill(before, signal.SIGKILL)
        until(lambda: gone(before), "the child lives")
        assert pid(cage) != before

    def test_a_child_that_cannot_start_is_a_transient_failure(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with Sandbox("no.such.module:answer") as cage:
            assert isinstance(refusal(lambda: ask(cage, "tell")), Transient)
        monkeypatch.setattr(sys, "executable", "/no/such/python")
        with Sandbox(TARGET) as cage:
            assert isinstance(refusal(lambda: ask(cage, "tell")), Transient)

    @pytest.mark.parametrize("wear", [("MAX_CALLS_PER_CHILD", 2), ("MAX_RETAINED_BYTES", 1)])
    def test_a_child_is_replaced_after_many_calls_or_much_memory(
        self, cage: Sandbox, wear: tuple[str, int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = pid(cage)
        monkeypatch.setattr(cages, *wear)
        pid(cage)
        assert pid(cage) != first
        until(lambda: gone(first), "the worn child lives")


class TestBrokenChildren:
    def test_a_child_that_reports_every_file_as_damaged_is_replaced(self, cage: Sandbox, tmp_path: Path) -> None:
        ask(cage, "spoil")
        before = pid(cage)
        told = ask(cage, "judge", damaged=False, sign=str(tmp_path / "sign")).head
        assert told["pid"] != before
        assert gone(before)

    def test_a_file_is_reported_as_damaged_only_if_a_new_child_agrees(self, cage: Sandbox, tmp_path: Path) -> None:
        before, sign = pid(cage), tmp_path / "sign"
        assert code(lambda: ask(cage, "judge", damaged=True, sign=str(sign))) == "unreadable"
        assert sign.read_text().split() == [str(before), str(pid(cage))]

    def test_a_new_child_needs_no_second_opinion(self, cage: Sandbox, tmp_path: Path) -> None:
        sign = tmp_path / "sign"
        assert code(lambda: ask(cage, "judge", damaged=True, sign=str(sign))) == "unreadable"
        assert sign.read_text().split() == [str(pid(cage))]

    def test_a_child_that_reports_itself_as_broken_is_replaced(self, cage: Sandbox) -> None:
        before = pid(cage)
        error = refusal(lambda: ask(cage, "confess"))
        assert (type(error), error.code) == (Transient, "reader_broken")
        assert error.params == {"library": "PDFium", "detail": "it is gone"}
        assert str(error).startswith("PDFium, which reads files of this format, does not work")
        assert ": it is gone. " in str(error)
        assert pid(cage) != before


class TestSharing:
    def test_one_child_serves_many_threads_in_turn(self, cage: Sandbox) -> None:
        pids: list[int] = []
        threads = [threading.Thread(target=lambda: pids.append(pid(cage))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(pids) == 8
        assert len(set(pids)) == 1

    def test_a_child_survives_the_thread_that_started_it(self, cage: Sandbox) -> None:
        first: list[int] = []
        thread = threading.Thread(target=lambda: first.append(pid(cage)))
        thread.start()
        thread.join()
        assert pid(cage) == first[0]

    def test_two_children_work_concurrently(self, tmp_path: Path) -> None:
        for gate in ("a", "b"):
            os.mkfifo(tmp_path / gate)
        a, b = str(tmp_path / "a"), str(tmp_path / "b")
        pids: list[int] = []
        with Sandbox(TARGET, children=2) as cage:
            sides = [[(a, "rb"), (b, "wb")], [(a, "wb"), (b, "rb")]]
            threads = [
                threading.Thread(target=lambda gates=side: pids.append(ask(cage, "meet", gates=gates).head["pid"]))
                for side in sides
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert len(set(pids)) == 2

    def test_closing_kills_the_child_and_refuses_further_calls(self) -> None:
        cage = Sandbox(TARGET)
        process = pid(cage)
        cage.close()
        assert gone(process)
        assert isinstance(refusal(lambda: pid(cage)), Transient)

    def test_closing_does_not_wait_for_an_answer(self, tmp_path: Path) -> None:
        cage, sign = Sandbox(TARGET), tmp_path / "sign"
        told: list[WorkError] = []
        thread = threading.Thread(target=lambda: told.append(refusal(lambda: ask(cage, "stall", sign=str(sign)))))
        thread.start()
        until(lambda: sign.exists() and sign.read_text(), "the child was not asked")
        cage.close()
        thread.join()
        assert isinstance(told[0], Transient)
        assert gone(int(sign.read_text()))


PROGRAM = f"""
import os, sys
sys.path[:0] = [{str(ROOT)!r}]
from holdfast.content.sandbox import Sandbox
cage = Sandbox({TARGET!r})
def ask(**question):
    return cage.call(question, seconds=600, memory=1 << 30, most=0).head
"""


def run(program: str, *arguments: str) -> subprocess.Popen[str]:
    # Forking a process that has threads warns.
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM + program, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def say(program: subprocess.Popen[str], word: str) -> None:
    assert program.stdin
    program.stdin.write(f"{word}\n")
    program.stdin.flush()


class TestProcesses:
    def test_a_child_ends_with_its_parent_even_in_native_code(self, tmp_path: Path) -> None:
        sign = tmp_path / "sign"
        with run("ask(do='stall', sign=sys.argv[1])", str(sign)) as parent:
            until(lambda: sign.exists() and sign.read_text(), "the child was not asked")
            parent.kill()
        until(lambda: gone(int(sign.read_text())), "the child outlived its parent")

    def test_an_idle_child_ends_with_the_program(self) -> None:
        with run("print(ask(do='tell')['pid'])") as parent:
            process = int(parent.communicate()[0])
        until(lambda: gone(process), "the child outlived its parent")

    def test_a_forked_process_starts_its_own_children(self) -> None:
        program = """
before = ask(do="tell")["pid"]
if not (forked := os.fork()):
    print(ask(do="tell")["pid"], flush=True)
    cage.close()
    os._exit(0)
os.waitpid(forked, 0)
print(before, ask(do="tell")["pid"])
"""
        with run(program) as parent:
            forked, before, after = map(int, parent.communicate()[0].split())
        assert forked != before
        assert before == after

    def test_a_forked_process_does_not_keep_the_child_alive(self, tmp_path: Path) -> None:
        program = """
import threading
threading.Thread(target=ask, kwargs={"do": "stall", "sign": sys.argv[1]}, daemon=True).start()
sys.stdin.readline()
if not os.fork():
    print("forked", flush=True)
    sys.stdin.readline()
    os._exit(0)
sys.stdin.readline()
"""
        sign = tmp_path / "sign"
        with run(program, str(sign)) as parent:
            until(lambda: sign.exists() and sign.read_text(), "the child was not asked")
            say(parent, "fork")
            assert parent.stdout
            assert parent.stdout.readline() == "forked\n"
            parent.kill()
            until(lambda: gone(int(sign.read_text())), "the child outlived its parent")
            say(parent, "end")


@pytest.fixture(scope="module")
def readers() -> Iterator[Sandbox]:
    """One warm child with the real readers."""
    with open_sandbox() as cage:
        yield cage


class Desk:
    """Reads samples in the shared child."""

    def __init__(self, cage: Sandbox, folder: Path) -> None:
        self._cage = cage
        self._folder = folder

    def __call__(self, name: str, data: bytes, limits: ReadLimits | None = None) -> ExtractedText:
        path = self._folder / "blob"  # a blob has no extension: only its content identifies the format
        path.write_bytes(data)
        return read(path, name, limits or ReadLimits(), sandbox=self._cage)


@pytest.fixture
def desk(readers: Sandbox, tmp_path: Path) -> Desk:
    return Desk(readers, tmp_path)


SAMPLES = {
    "a.docx": docx("First", SENTENCE),
    "a.pptx": pptx("First", SENTENCE),
    "a.xlsx": xlsx(("bird", "habit"), ("heron", SENTENCE)),
    "a.odt": odt("First", SENTENCE),
    "a.odp": odp("First", SENTENCE),
    "a.epub": epub("Herons", SENTENCE),
    "a.pdf": pdf("First", SENTENCE),
    "a.doc": samples.doc(f"First. {SENTENCE}"),
    "a.rtf": b"{\\rtf1\\ansi First\\par " + SENTENCE.encode() + b"\\par}",
    "a.html": f"<html><body><p>First<p>{SENTENCE}".encode(),
    "a.ipynb": notebook(("markdown", SENTENCE), ("code", "1")),
    "a.eml": f"Subject: Herons\nFrom: a@example.com\nContent-Type: text/html\n\n<p>{SENTENCE}".encode(),
}


class TestDocuments:
    @pytest.mark.parametrize("name", SAMPLES)
    def test_each_format_is_read(self, desk: Desk, name: str) -> None:
        found = desk(name, SAMPLES[name])
        assert SENTENCE in found.text
        assert found.metadata["mime"]
        assert found.text == found.text.strip()

    @pytest.mark.parametrize("name", [name for name in SAMPLES if name not in {"a.eml", "a.ipynb"}])
    def test_the_format_is_detected_by_content_and_not_by_name(self, desk: Desk, name: str) -> None:
        assert desk("wrong.txt", SAMPLES[name]) == desk(name, SAMPLES[name])

    @pytest.mark.parametrize("name", SAMPLES)
    def test_the_same_bytes_give_the_same_text(self, name: str, desk: Desk, tmp_path: Path) -> None:
        with open_sandbox() as other:
            assert Desk(other, tmp_path)(name, SAMPLES[name]) == desk(name, SAMPLES[name])

    def test_the_pages_of_a_pdf_have_offsets(self, desk: Desk) -> None:
        words = ["Herons fish at dawn.", "Egrets follow cattle.", "Bitterns hide in reeds."]
        found = desk("a.pdf", pdf(*words))
        assert [found.text[start:].split("\n")[0] for start in found.pages] == words

    def test_slides_have_offsets(self, desk: Desk) -> None:
        found = desk("a.pptx", pptx("Herons", "Egrets"))
        assert [found.text[start:].split("\n")[0] for start in found.pages] == ["## Herons", "## Egrets"]
        assert found.title == "Herons"

    def test_a_broken_picture_does_not_lose_the_text_of_a_slide(self, desk: Desk) -> None:
        broken = (
            "<p:pic><p:nvPicPr><p:cNvPr id='3' name='P'/><p:cNvPicPr/><p:nvPr/></p:nvPicPr>"
            "<p:blipFill><a:blip/></p:blipFill></p:pic>"
        )
        found = desk("a.pptx", pptx("Herons", SENTENCE, shape=broken))
        assert found.text == f"Herons\n\n{SENTENCE}"
        assert found.warnings

    def test_a_web_page_is_text_without_scripts_and_pictures(self, desk: Desk) -> None:
        page = (
            "<!doctype html><html><head><title>T &amp; U</title><meta name=description content=metaword>"
            "<style>p {styleword: 1}</style><script>scriptword()</script></head><body><h1>Herons</h1>"
            "<p onclick='clickword()'>wait <a href='javascript:linkword(1)'>here</a> and <a href='/x'>there</a>"
            "<img alt='a heron' src='data:image/png;base64,AAAA'></p><svg><text>svgword</text></svg>"
            "<table><tr><th>a<th>b<tr><td>1<td>2</table><pre>x = 1</pre></body></html>"
        )
        found = desk("a.html", page.encode())
        assert found.title == "T & U"
        assert found.text.startswith("# Herons\n\nwait here and [there](/x)a heron")
        assert "| 1 | 2 |" in found.text
        assert not [word for word in ("style", "script", "meta", "click", "link", "svg") if f"{word}word" in found.text]

    @pytest.mark.parametrize("encoding", ["gb18030", "shift_jis", "utf-16", "utf-8"])
    def test_a_web_page_is_decoded_with_its_declared_encoding(self, desk: Desk, encoding: str) -> None:
        page = f"<html><head><meta charset='{encoding}'><title>所有</title></head><body><p>所有する</p></body></html>"
        found = desk("a.html", page.encode(encoding))
        assert (found.title, found.text) == ("所有", "所有する")

    def test_a_large_plain_text_is_read_in_the_sandbox(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reading, "read_in_process", None)
        assert desk("a.txt", b"word " * (reading.IN_PROCESS_BYTES // 4)).text.startswith("word word")

    def test_a_file_whose_name_is_not_valid_unicode_is_read(self, readers: Sandbox, tmp_path: Path) -> None:
        path = tmp_path / os.fsdecode(b"h\xe9ron.pdf")
        path.write_bytes(SAMPLES["a.pdf"])
        assert SENTENCE in read(path, path.name, sandbox=readers).text

    def test_a_relative_path_is_read(self, readers: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "x").write_bytes(SAMPLES["a.pdf"])
        monkeypatch.chdir(tmp_path)
        assert SENTENCE in read(Path("x"), "x", sandbox=readers).text

    def test_without_a_sandbox_argument_the_shared_sandbox_is_used(self, tmp_path: Path) -> None:
        (tmp_path / "x").write_bytes(SAMPLES["a.docx"])
        try:
            assert SENTENCE in read(tmp_path / "x", "x.docx").text
        finally:
            reading.SHARED_SANDBOX.close()
            reading.SHARED_SANDBOX._closed = False

    def test_kreuzberg_is_configured_to_extract_only_text(self) -> None:
        config = documents._config(documents._import_kreuzberg(), "markdown")
        assert (config.use_cache, config.disable_ocr, config.max_archive_depth) == (False, True, 0)

    def test_a_missing_library_is_reported(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The child imports from our `sys.path`, so a library missing there is missing in the child."""
        (own := tmp_path / "own").mkdir()
        needed = sys.modules["lazy_loader"].__file__ or ""  # our own packages need it; everything else is missing
        (own / "lazy_loader").symlink_to(Path(needed).parent)
        monkeypatch.setattr(sys, "path", [str(own), *(entry for entry in sys.path if "site-packages" not in entry)])
        (tmp_path / "x").write_bytes(SAMPLES["a.pdf"])
        with open_sandbox() as cage:
            assert code(lambda: read(tmp_path / "x", "x.pdf", sandbox=cage)) == "reader_missing"


LIBRARY = Path("kreuzberg-pdfium", "libpdfium.so")  # below the temporary folder, the same path for all users

READ_ON_A_MOUNT = """
import json, subprocess, sys, tempfile
from pathlib import Path
from holdfast.content.reading import open_sandbox, read
from holdfast.errors import WorkError
options, folder, spare, *files = sys.argv[1:]
mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, text=True)
if mounted.returncode:
    print(json.dumps({"refused": mounted.stderr}))
    sys.exit()
tempfile.tempdir = folder

def outcome(file):
    try:
        return read(Path(file), file, sandbox=cage, spare=Path(spare) if spare else None).text
    except WorkError as error:
        return [type(error).__name__, error.code]

with open_sandbox() as cage:
    told = [outcome(file) for file in files]
    subprocess.run(["umount", "--lazy", folder], check=True)
    print(json.dumps({"mounted": told, "afterwards": outcome(files[0])}))
"""


def read_on_a_mount(options: str, folder: Path, spare: Path | str) -> dict[str, Any]:
    """Read a PDF and a Word file while the temporary folder has these mount options, and the PDF again afterwards."""
    missing = [tool for tool in ("unshare", "mount") if shutil.which(tool) is None]
    if missing:
        assert os.environ.get("CI") != "true", f"install {missing}: continuous integration must mount a folder"
        pytest.skip(f"there is no {missing[0]}")
    (temporary := folder / "tmp").mkdir()
    for name in ("a.pdf", "a.docx"):
        (folder / name).write_bytes(SAMPLES[name])
    words = [options, temporary, spare, folder / "a.pdf", folder / "a.docx"]
    command = ["unshare", "-rm", sys.executable, "-c", READ_ON_A_MOUNT, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
    if "refused" in told or (done.returncode and done.stderr.startswith("unshare:")):
        pytest.skip(f"this kernel does not let us mount a folder: {told.get('refused') or done.stderr}")
    assert done.returncode == 0, done.stderr
    return told


class TestFreshMachine:
    """kreuzberg unpacks PDFium on first use; the temporary folder may be unsuitable for that."""

    @pytest.fixture
    def temporary(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        (folder := tmp_path / "tmp").mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        return folder

    def test_reading_a_pdf_leaves_no_files_in_the_temporary_folder(self, temporary: Path, tmp_path: Path) -> None:
        with open_sandbox() as cage:
            assert SENTENCE in Desk(cage, tmp_path)("a.pdf", SAMPLES["a.pdf"]).text
        assert list(temporary.iterdir()) == []

    def test_processes_that_start_at_the_same_time_read_pdf_files(self, temporary: Path, tmp_path: Path) -> None:
        (tmp_path / "blob").write_bytes(SAMPLES["a.pdf"])
        with open_sandbox(children=3) as cage, ThreadPoolExecutor(3) as threads:
            found = list(threads.map(lambda _: read(tmp_path / "blob", "a.pdf", sandbox=cage).text, range(3)))
        assert all(SENTENCE in text for text in found)
        assert list(temporary.iterdir()) == []

    def test_a_library_left_by_another_user_is_not_loaded(self, temporary: Path, tmp_path: Path) -> None:
        (temporary / LIBRARY).parent.mkdir()
        (temporary / LIBRARY).write_bytes(b"cut off")
        with open_sandbox() as cage:
            assert SENTENCE in Desk(cage, tmp_path)("a.pdf", SAMPLES["a.pdf"]).text
        assert (temporary / LIBRARY).read_bytes() == b"cut off"

    @pytest.mark.parametrize("options", ["ro", "noexec", "size=1m"])
    def test_the_spare_folder_is_used_if_the_temporary_folder_is_unsuitable(self, tmp_path: Path, options: str) -> None:
        (spare := tmp_path / "home").mkdir()
        told = read_on_a_mount(options, tmp_path, spare)
        assert all(SENTENCE in text for text in told["mounted"])
        assert list(spare.iterdir()) == []

    @pytest.mark.parametrize("options", ["noexec", "size=1m"])
    def test_without_pdfium_a_pdf_waits_and_is_read_after_the_cause_is_fixed(
        self, tmp_path: Path, options: str
    ) -> None:
        told = read_on_a_mount(options, tmp_path, "")
        pdf_file, word_file = told["mounted"]
        assert pdf_file == ["Transient", "reader_broken"]
        assert SENTENCE in word_file
        assert SENTENCE in told["afterwards"]


class TestRefusals:
    def test_the_page_limit_is_enforced(self, desk: Desk) -> None:
        three = pdf("one", "two", "three")
        assert desk("a.pdf", three, ReadLimits(pages=3)).pages
        assert code(lambda: desk("a.pdf", three, ReadLimits(pages=2))) == "too_many_pages"

    def test_the_page_limit_is_enforced_before_parsing(self, desk: Desk) -> None:
        empty = pdf("", "", "")
        assert code(lambda: desk("a.pdf", empty, ReadLimits(pages=2))) == "too_many_pages"  # and not `no_text`

    def test_the_byte_limit_is_enforced(self, desk: Desk) -> None:
        assert code(lambda: desk("a.docx", docx(SENTENCE), ReadLimits(bytes=100))) == "file_too_large"

    def test_the_slide_limit_is_enforced(self, desk: Desk) -> None:
        assert code(lambda: desk("a.pptx", pptx("one", "two", "three"), ReadLimits(pages=2))) == "too_many_pages"

    def test_the_text_limit_is_enforced(self, desk: Desk) -> None:
        assert desk("a.docx", docx("x" * 100), ReadLimits(text=100)).text
        assert code(lambda: desk("a.docx", docx("x" * 101), ReadLimits(text=100))) == "too_much_text"

    def test_the_limit_on_expanded_bytes_is_enforced(self, desk: Desk) -> None:
        assert code(lambda: desk("a.docx", docx(SENTENCE), ReadLimits(expanded=100))) == "unpacked_too_large"

    def test_the_time_limit_is_enforced(self, desk: Desk) -> None:
        desk("a.docx", SAMPLES["a.docx"])  # warm up the child
        many = docx(*(f"Paragraph {number} about herons" for number in range(150_000)))
        assert code(lambda: desk("a.docx", many, ReadLimits(seconds=0.2))) == "too_slow"

    def test_the_memory_limit_is_enforced(self, desk: Desk) -> None:
        many = docx(*(f"Paragraph {number} about herons" for number in range(150_000)))
        assert code(lambda: desk("a.docx", many, ReadLimits(memory=64 * MIB))) == "too_much_memory"
        assert SENTENCE in desk("a.docx", SAMPLES["a.docx"]).text

    @pytest.mark.parametrize("name", ["a.docx", "a.pptx", "a.xlsx", "a.odt", "a.epub", "a.pdf"])
    def test_a_truncated_file_is_refused(self, desk: Desk, name: str) -> None:
        whole = SAMPLES[name]
        for length in (10, len(whole) // 4, len(whole) // 2):
            assert code(lambda length=length: desk(name, whole[:length])) in {"unreadable", "no_text"}  # type: ignore[misc]

    @pytest.mark.parametrize(
        ("name", "data"),
        [
            ("empty.docx", docx()),
            ("empty.pdf", pdf("")),
            ("picture.docx", docx(extra={"word/media/image1.png": b"\x89PNG"})),
            ("rules.html", b"<html><body><hr><img src=x.png alt='x.png'></body></html>"),
            ("silent.eml", b"From: a@example.com\nTo: b@example.com\nDate: now\n\n"),
        ],
    )
    def test_a_file_without_text_is_refused(self, desk: Desk, name: str, data: bytes) -> None:
        assert code(lambda: desk(name, data)) == "no_text"

    def test_an_encrypted_office_file_is_refused(self, desk: Desk) -> None:
        data = samples.compound("EncryptionInfo", "EncryptedPackage")
        assert code(lambda: desk("a.docx", data)) == "encrypted"

    def test_an_encrypted_pdf_is_refused(self, desk: Desk) -> None:
        lock = b"<</Filter/Standard/V 1/R 2/P -4/O(" + b"o" * 32 + b")/U(" + b"u" * 32 + b")>>"
        data = pdf(SENTENCE, objects={9: lock}).replace(b"/Root 1 0 R", b"/Root 1 0 R/Encrypt 9 0 R/ID[(a)(a)]")
        assert code(lambda: desk("a.pdf", data)) == "encrypted"

    def test_an_old_word_document_whose_table_is_longer_than_the_file_is_read(self, desk: Desk) -> None:
        assert desk("a.doc", samples.doc(SENTENCE, unused=samples.END)).text == SENTENCE

    def test_an_intact_file_that_the_reader_cannot_parse_is_not_reported_as_damaged(self, desk: Desk) -> None:
        assert code(lambda: desk("a.doc", samples.compound("WordDocument", "1Table"))) == "reader_failed"
        assert code(lambda: desk("a.docx", docx("<broken"))) == "reader_failed"

    @pytest.mark.parametrize("place", [28, 48, 512])  # byte order, directory, allocation table
    def test_an_old_word_document_with_zeroed_bytes_is_reported_as_damaged(self, desk: Desk, place: int) -> None:
        whole = samples.doc(SENTENCE)
        broken = whole[:place] + bytes(16) + whole[place + 16 :]
        assert code(lambda: desk("a.doc", broken)) == "unreadable"

    def test_a_truncated_old_word_document_is_reported_as_damaged(self, desk: Desk) -> None:
        assert code(lambda: desk("a.doc", samples.doc(SENTENCE, unused=samples.END)[:-512])) == "unreadable"

    def test_a_changed_byte_in_a_zip_is_reported_as_damage(self, desk: Desk) -> None:
        data = packed({"word/document.xml": f"<w:document>{SENTENCE}"}, zipfile.ZIP_STORED)
        assert code(lambda: desk("a.docx", data.replace(b"heron", b"Heron"))) == "unreadable"

    def test_a_changed_byte_in_a_picture_does_not_lose_the_text(self, desk: Desk) -> None:
        picture = b"\x89PNG" + os.urandom(64)
        data = docx(SENTENCE, extra={"word/media/image1.png": picture})
        assert picture in data
        assert desk("a.docx", data.replace(picture, picture[::-1])).text == SENTENCE

    def test_an_archive_is_refused(self, desk: Desk) -> None:
        assert code(lambda: desk("a.zip", packed({"a.txt": SENTENCE}))) == "unsupported_archive"


LAUGHS = "<!DOCTYPE x [<!ENTITY a 'ha'>" + "".join(
    f"<!ENTITY {chr(98 + n)} '{f'&{chr(97 + n)};' * 10}'>" for n in range(9)
)
HOSTILE_SAMPLES = {
    "laughs.docx": docx("&j;", head=LAUGHS + "]>"),
    "outside.docx": docx("&x;", head="<!DOCTYPE x [<!ENTITY x SYSTEM 'file:///etc/passwd'>]>"),
    "bomb.docx": docx(extra={"word/zeros.xml": bytes(20 * MIB)}),
    "nested.docx": docx(SENTENCE, extra={"word/embeddings/bomb.zip": packed({"zeros": bytes(20 * MIB)})}),
    "deep.docx": docx("<w:p>" * 100_000),
    "endless.pdf": pdf(SENTENCE, objects={2: b"<</Type/Pages/Kids[4 0 R]/Count 999999999>>"}),
    "loop.pdf": pdf(SENTENCE, objects={2: b"<</Type/Pages/Kids[2 0 R 2 0 R]/Count 4>>"}),
    "stacked.pdf": pdf(
        SENTENCE,
        objects={
            5: samples.stream(samples.deflated(bytes(20 * MIB), 3), b"/Filter[/FlateDecode/FlateDecode/FlateDecode]")
        },
    ),
    "deep.html": b"<html><body>" + b"<div><table><tr><td>" * 50_000,
    "open.html": b"<html><body>" + b"<svg " * 50_000 + b"![a" * 50_000,
    "deep.rtf": b"{\\rtf1 " + b"{" * 500_000,
    "deep.ipynb": b"[" * 500_000,
    "deep.eml": b"".join(b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (n, n) for n in range(1500)),
}


class TestHostileFiles:
    @pytest.mark.parametrize("name", HOSTILE_SAMPLES)
    def test_a_hostile_file_is_read_or_refused_within_its_limits(self, desk: Desk, name: str) -> None:
        with suppress(Permanent):  # also `too_slow`: killing the process enforces the limit
            found = desk(name, HOSTILE_SAMPLES[name], ReadLimits(seconds=30, memory=512 * MIB))
            assert len(found.text) < MIB
            assert "root:" not in found.text
        assert SENTENCE in desk("a.docx", SAMPLES["a.docx"]).text

    @pytest.mark.parametrize("name", ["laughs.docx", "outside.docx"])
    def test_declared_entities_are_refused(self, desk: Desk, name: str) -> None:
        assert code(lambda: desk(name, HOSTILE_SAMPLES[name])) == "reader_failed"

    def test_a_zip_bomb_is_refused(self, desk: Desk) -> None:
        assert code(lambda: desk("bomb.docx", HOSTILE_SAMPLES["bomb.docx"])) == "unpacked_too_large"

    def test_embedded_archives_are_not_opened(self, desk: Desk) -> None:
        assert desk("nested.docx", HOSTILE_SAMPLES["nested.docx"]).text == SENTENCE

    @pytest.mark.skipif(not GOOD, reason="the collection of real documents is not here")
    def test_most_real_documents_are_read(self, readers: Sandbox) -> None:
        unread = {}
        for path in GOOD:
            try:
                read(path, path.name, sandbox=readers)
            except Permanent as refused:
                unread[path.name] = refused.code
        assert len(unread) <= len(GOOD) * UNREAD, unread
        assert set(unread.values()) <= {"no_text", "reader_failed"}

    @pytest.mark.skipif(not HOSTILE, reason="the collection of hostile documents is not here")
    def test_hostile_documents_are_read_or_refused_safely(self, readers: Sandbox) -> None:
        codes = set()
        for path in HOSTILE:
            try:
                read(path, path.name, ReadLimits(seconds=30), sandbox=readers)
            except Permanent as refused:
                codes.add(refused.code)
        assert codes <= {"no_text", "unreadable", "encrypted"}
