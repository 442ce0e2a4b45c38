"""Tasks for tests of the sandbox, most of which misbehave. A child process runs each of them by its name."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.content import errors as refusals
from holdfast.errors import Permanent, Transient

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Answer = tuple[Mapping[str, Any], bytes]

spoiled = False
LIMITS = {
    "core": resource.RLIMIT_CORE,
    "cpu": resource.RLIMIT_CPU,
    "data": resource.RLIMIT_DATA,
    "file": resource.RLIMIT_FSIZE,
    "descriptors": resource.RLIMIT_NOFILE,
}


def prepare() -> None:
    """Write a file into TMPDIR that is larger than the limit that later applies to the child."""
    Path(os.environ["TMPDIR"], "library").write_bytes(bytes(1 << 20))


def answer(question: Mapping[str, Any]) -> Answer:
    """Run the task that the question names."""
    deed: Callable[[Mapping[str, Any]], Answer] = globals()[question["do"]]
    return deed(question)


def tell(question: Mapping[str, Any]) -> Answer:
    """Return what a child process can find out about itself."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "pid": os.getpid(),
        "environment": dict(os.environ),
        "directory": _directory(),
        "niceness": os.nice(0),
        "limits": {name: resource.getrlimit(what)[0] for name, what in LIMITS.items()},
        "used": used.ru_utime + used.ru_stime,
    }, question.get("say", "").encode()


def refuse(_: Mapping[str, Any]) -> Answer:
    """Raise a permanent error for this file."""
    raise refusals.encrypted()


def put_off(_: Mapping[str, Any]) -> Answer:
    """Raise a temporary error."""
    raise Transient("file_unavailable")


def spoil(_: Mapping[str, Any]) -> Answer:
    """Answer normally, but report every later file as unreadable."""
    globals()["spoiled"] = True
    return {}, b""


def judge(question: Mapping[str, Any]) -> Answer:
    """Report a damaged file as unreadable, or any file after `spoil`. Record the id of this process."""
    with Path(question["sign"]).open("a") as sign:
        sign.write(f"{os.getpid()}\n")
    if question["damaged"] or spoiled:
        raise refusals.unreadable()
    return {"pid": os.getpid()}, b""


def confess(_: Mapping[str, Any]) -> Answer:
    """Report that the reader of this process is broken."""
    raise Transient("reader_broken", params={"library": "PDFium", "detail": "it is gone"})


def refuse_with_a_message(_: Mapping[str, Any]) -> Answer:
    """Raise an error with its own message, as a plug-in does."""
    raise Permanent("plot_missing", "The plot has no soil.", params={"plot": "7"})


def fail(_: Mapping[str, Any]) -> Answer:
    """Raise an unexpected error."""
    raise RuntimeError


def die(question: Mapping[str, Any]) -> Answer:
    """Write a message to stderr and die by a signal."""
    os.write(2, question.get("saying", "").encode())
    os.kill(os.getpid(), question["signal"])
    raise AssertionError


def spin(_: Mapping[str, Any]) -> Answer:
    """Loop without end."""
    while True:
        pass


def stall(question: Mapping[str, Any]) -> Answer:
    """Block without end in native code that holds the interpreter lock. Record the id of this process first."""
    _sign(question)
    ctypes.PyDLL(None).pause()
    raise AssertionError


def breed(question: Mapping[str, Any]) -> Answer:
    """Start a child process and loop without end."""
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    Path(question["sign"]).write_text(str(child.pid))
    return spin(question)


def hog(question: Mapping[str, Any]) -> Answer:
    """Allocate this many bytes."""
    taken = bytearray(question["bytes"])
    return {"taken": len(taken)}, b""


def hesitate(question: Mapping[str, Any]) -> Answer:
    """Wait at a gate, then abort without an answer."""
    Path(question["gate"]).read_bytes()
    os.abort()


def meet(question: Mapping[str, Any]) -> Answer:
    """Answer only while another process runs its task too."""
    for gate, mode in question["gates"]:
        with Path(gate).open(mode):
            pass
    return {"pid": os.getpid()}, b""


def write(question: Mapping[str, Any]) -> Answer:
    """Write a file and return the error number if that fails."""
    try:
        Path(question["path"]).write_bytes(bytes(question["bytes"]))
    except OSError as error:
        return {"error": error.errno}, b""
    return {}, b""


def nothing(_: Mapping[str, Any]) -> Any:
    """Return an invalid answer."""
    return ["no", "head"], b""


def _sign(question: Mapping[str, Any]) -> None:
    Path(question["sign"]).write_text(str(os.getpid()))


def _directory() -> str | None:
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return None


SEGFAULT, KILLED, OUT_OF_TIME = signal.SIGSEGV, signal.SIGKILL, signal.SIGXCPU
