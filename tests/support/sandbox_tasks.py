"""What a cage is made for: answers that misbehave. Each is asked in a child process, by its name."""

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
    """Write a file longer than a child may write later, in the temporary folder that the environment names."""
    Path(os.environ["TMPDIR"], "library").write_bytes(bytes(1 << 20))


def answer(question: Mapping[str, Any]) -> Answer:
    """Do what the question asks, good or bad."""
    deed: Callable[[Mapping[str, Any]], Answer] = globals()[question["do"]]
    return deed(question)


def tell(question: Mapping[str, Any]) -> Answer:
    """Answer, with what can be known in here."""
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
    """Refuse in an orderly way."""
    raise refusals.encrypted()


def put_off(_: Mapping[str, Any]) -> Answer:
    """Refuse for now."""
    raise refusals.file_unavailable()


def spoil(_: Mapping[str, Any]) -> Answer:
    """Answer, and blame every file from now on."""
    globals()["spoiled"] = True
    return {}, b""


def judge(question: Mapping[str, Any]) -> Answer:
    """Blame a file that is damaged, and any file once this process is spoiled; note who judged."""
    with Path(question["sign"]).open("a") as sign:
        sign.write(f"{os.getpid()}\n")
    if question["damaged"] or spoiled:
        raise refusals.unreadable()
    return {"pid": os.getpid()}, b""


def confess(_: Mapping[str, Any]) -> Answer:
    """Say that this process is broken."""
    raise refusals.reader_broken("PDFium", "it is gone")


def fail(_: Mapping[str, Any]) -> Answer:
    """Fail as no reader should."""
    raise RuntimeError


def die(question: Mapping[str, Any]) -> Answer:
    """Die of a signal, after a last word."""
    os.write(2, question.get("saying", "").encode())
    os.kill(os.getpid(), question["signal"])
    raise AssertionError


def spin(_: Mapping[str, Any]) -> Answer:
    """Never answer."""
    while True:
        pass


def stall(question: Mapping[str, Any]) -> Answer:
    """Never answer, in native code that keeps the interpreter to itself; tell where we are."""
    _sign(question)
    ctypes.PyDLL(None).pause()
    raise AssertionError


def breed(question: Mapping[str, Any]) -> Answer:
    """Start a process and never answer."""
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    Path(question["sign"]).write_text(str(child.pid))
    return spin(question)


def hog(question: Mapping[str, Any]) -> Answer:
    """Take so many bytes, all of them."""
    taken = bytearray(question["bytes"])
    return {"taken": len(taken)}, b""


def hesitate(question: Mapping[str, Any]) -> Answer:
    """Wait at a gate, then die without a word."""
    Path(question["gate"]).read_bytes()
    os.abort()


def meet(question: Mapping[str, Any]) -> Answer:
    """Answer only while the other one is being asked too."""
    for gate, mode in question["gates"]:
        with Path(gate).open(mode):
            pass
    return {"pid": os.getpid()}, b""


def write(question: Mapping[str, Any]) -> Answer:
    """Write a file."""
    try:
        Path(question["path"]).write_bytes(bytes(question["bytes"]))
    except OSError as error:
        return {"error": error.errno}, b""
    return {}, b""


def nothing(_: Mapping[str, Any]) -> Any:
    """Answer what is no answer."""
    return ["no", "head"], b""


def _sign(question: Mapping[str, Any]) -> None:
    Path(question["sign"]).write_text(str(os.getpid()))


def _directory() -> str | None:
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return None


SEGFAULT, KILLED, OUT_OF_TIME = signal.SIGSEGV, signal.SIGKILL, signal.SIGXCPU
