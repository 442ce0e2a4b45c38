"""The child in the cage: it answers one question after the other until it is killed or nobody asks any more.

It first prepares what its libraries unpack and load, for which it may have to write long files. Before it opens a file
of a user it gives up what no reader needs: no core dumps, no files longer than a note to stderr, few descriptors, the
lowest claim to memory when the machine runs out of it, and for each question a share of processor time and memory.
Memory is limited as RLIMIT_DATA, private writable memory. RLIMIT_AS would also count what native threads reserve and
never touch, 0.4 GiB before the first file.

When the parent dies, the kernel closes its end of the lifeline and sends the child SIGIO, whose default is death;
that works while a native parser holds the interpreter. PR_SET_PDEATHSIG would not do: it fires when the *thread* that
started the child ends, and the parent's threads come and go.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import resource
import select
import signal
import socket
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from holdfast.content.framing import receive, send
from holdfast.errors import Transient, WorkError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    TargetFunction = Callable[[Mapping[str, Any]], tuple[Mapping[str, Any], bytes]]

READY = b"ready"
MAX_REQUEST_BYTES = 1 << 20
MAX_WRITTEN_FILE_BYTES = 1 << 16  # what a child may write to any file, and so what it may leave in stderr
DESCRIPTORS = 64
NICENESS = 10
MAX_OOM_SCORE = "1000"


def serve(channel_descriptor: int, lifeline: int, target: str, prepare: str) -> None:
    """Call `prepare`, if one is named; then answer questions with `target` until the parent closes the channel.

    The process ends here and at once: the parent takes a closed channel as the sign that the child is dead, so the
    interpreter must not close it on the way out.
    """
    status = 1
    channel = socket.socket(fileno=channel_descriptor)  # held here: a frame that unwinds would close it early
    try:
        _die_with_parent(lifeline)
        if prepare:
            _import_function(prepare)()
        _apply_permanent_limits()
        _serve_requests(channel, _import_function(target))
    except EOFError:
        status = 0
    except BaseException:  # noqa: BLE001 - a panic in native code is no Exception, and this process ends anyway
        traceback.print_exc()
    finally:
        os._exit(status)


def _import_function(name: str) -> Any:
    """Import a function given as `module:function`."""
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


def _serve_requests(channel: socket.socket, answerer: TargetFunction) -> NoReturn:
    send(channel, READY)
    while True:
        _serve_request(channel, answerer, json.loads(receive(channel, MAX_REQUEST_BYTES)))


def _serve_request(channel: socket.socket, answerer: TargetFunction, question: Mapping[str, Any]) -> None:
    """Answer one question. Whatever else than a refusal is raised ends this child: its state is not trusted."""
    _apply_request_limits(question["seconds"], question["memory"])
    try:
        head, body = answerer(question)
    except WorkError as refused:
        lasting = not isinstance(refused, Transient)
        said = {"message": str(refused), "params": dict(refused.params)}
        head, body = {"refused": refused.code, "lasting": lasting, **said}, b""
    except MemoryError:
        resource.setrlimit(resource.RLIMIT_DATA, resource.getrlimit(resource.RLIMIT_DATA)[1:] * 2)  # room to say so
        head, body = {"refused": "too_much_memory"}, b""
    send(channel, json.dumps(head).encode())
    send(channel, body)


def _die_with_parent(lifeline: int) -> None:
    """Die with the parent."""
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGIO, signal.SIGXCPU})
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    listener = select.poll()
    listener.register(lifeline)
    if listener.poll(0):  # the parent was gone before we listened
        raise EOFError


def _apply_permanent_limits() -> None:
    """Give up what no reader needs."""
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, MAX_WRITTEN_FILE_BYTES)
    _limit(resource.RLIMIT_NOFILE, DESCRIPTORS)
    os.nice(NICENESS)
    with suppress(OSError):  # Linux only
        Path("/proc/self/oom_score_adj").write_text(MAX_OOM_SCORE, encoding="ascii")


def _apply_request_limits(seconds: float, memory: int) -> None:
    """Allow this much processor time from now on, and this much memory in all."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime + seconds) + 1)
    _limit(resource.RLIMIT_DATA, memory)


def _limit(what: int, most: int) -> None:
    """Set the limit that counts; the hard one is left, since the next question may be allowed more."""
    hard = resource.getrlimit(what)[1]
    resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
