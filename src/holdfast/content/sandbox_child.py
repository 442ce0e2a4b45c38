"""The sandboxed child process: serves requests until it is killed or the parent closes the channel.

The child first lets its libraries unpack and load themselves, which may write large files. Before it opens a file of a
user it gives up everything that no reader needs: no core dumps, no large files, few descriptors, the first to be killed
when the machine runs out of memory, and limited processor time and memory per request. The memory limit is RLIMIT_DATA,
private writable memory. RLIMIT_AS would also count memory that native threads reserve and never touch, 0.4 GiB before
the first file.

When the parent dies, the kernel closes its end of the lifeline pipe and sends the child SIGIO, which kills it by
default. This works even while a native parser holds the interpreter. PR_SET_PDEATHSIG is not suitable: it fires when
the *thread* that started the child ends, and the threads of the parent are short-lived.
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
MAX_WRITTEN_FILE_BYTES = 1 << 16  # also limits stderr
DESCRIPTORS = 64
NICENESS = 10
MAX_OOM_SCORE = "1000"


def serve(channel_descriptor: int, lifeline: int, target: str, prepare: str) -> None:
    """Call `prepare` if given; then answer requests with `target` until the parent closes the channel.

    The process ends here with `os._exit`. The parent takes a closed channel to mean that the child is dead, so the
    interpreter must not close the channel during a slow shutdown.
    """
    status = 1
    channel = socket.socket(fileno=channel_descriptor)  # referenced here so that it stays open until os._exit
    try:
        _die_with_parent(lifeline)
        if prepare:
            _import_function(prepare)()
        _apply_permanent_limits()
        _serve_requests(channel, _import_function(target))
    except EOFError:
        status = 0
    except BaseException:  # noqa: BLE001 - native panics are no Exception, and this process ends anyway
        traceback.print_exc()
    finally:
        os._exit(status)


def _import_function(name: str) -> Any:
    """Import a function given as `module:function`."""
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


def _serve_requests(channel: socket.socket, target: TargetFunction) -> NoReturn:
    send(channel, READY)
    while True:
        _serve_request(channel, target, json.loads(receive(channel, MAX_REQUEST_BYTES)))


def _serve_request(channel: socket.socket, target: TargetFunction, request: Mapping[str, Any]) -> None:
    """Answer one request. Any other error than a `WorkError` or `MemoryError` ends the child: its state is unknown."""
    _apply_request_limits(request["seconds"], request["memory"])
    try:
        head, body = target(request)
    except WorkError as refused:
        lasting = not isinstance(refused, Transient)
        head, body = {"refused": refused.code, "lasting": lasting, "params": dict(refused.params)}, b""
    except MemoryError:
        resource.setrlimit(resource.RLIMIT_DATA, resource.getrlimit(resource.RLIMIT_DATA)[1:] * 2)  # for the reply
        head, body = {"refused": "too_much_memory"}, b""
    send(channel, json.dumps(head).encode())
    send(channel, body)


def _die_with_parent(lifeline: int) -> None:
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGIO, signal.SIGXCPU})
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    listener = select.poll()
    listener.register(lifeline)
    if listener.poll(0):  # the parent died before the signal was set up
        raise EOFError


def _apply_permanent_limits() -> None:
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, MAX_WRITTEN_FILE_BYTES)
    _limit(resource.RLIMIT_NOFILE, DESCRIPTORS)
    os.nice(NICENESS)
    with suppress(OSError):  # Linux only
        Path("/proc/self/oom_score_adj").write_text(MAX_OOM_SCORE, encoding="ascii")


def _apply_request_limits(seconds: float, memory: int) -> None:
    """Allow this much more processor time, and this much memory in total."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime + seconds) + 1)
    _limit(resource.RLIMIT_DATA, memory)


def _limit(what: int, most: int) -> None:
    """Set the soft limit only, since the next request may be allowed more."""
    hard = resource.getrlimit(what)[1]
    resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
