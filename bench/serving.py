"""How quickly a server accepts uploads while its workers index: beside a request that does nothing, in the same run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import quantiles
from typing import TYPE_CHECKING, Any

import httpx2

if TYPE_CHECKING:
    from collections.abc import Callable

CLIENTS = 8
UPLOADS = 1200
AHEAD = 600  # documents that keep the workers busy
TEXT = "# {name}\n\n" + "The quick brown fox jumps over the lazy dog by the river {name}. " * 60


@dataclass(frozen=True)
class Latency:
    """What clients saw."""

    p50: float  # milliseconds
    p99: float
    rate: float  # requests a second, of all clients together


def measure() -> tuple[Latency, Latency, int]:
    """Return how long nothing takes, how long an upload takes, and how many documents still waited at the end."""
    with tempfile.TemporaryDirectory() as home:
        environment = os.environ | {"HOLDFAST_HOME": home}
        command = [sys.executable, "-m", "holdfast.cli", "serve", "--port", "0"]
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as server:
            assert server.stdout is not None
            address = next(word for word in server.stdout.readline().split() if word.startswith("http://"))
            try:
                with httpx2.Client(base_url=address, timeout=60, trust_env=False) as http:
                    return _measured(http)
            finally:
                server.send_signal(signal.SIGINT)
                server.wait(60)


def _measured(http: httpx2.Client) -> tuple[Latency, Latency, int]:
    http.post("/api/v1/bases", json={"name": "bench"}).raise_for_status()
    for first in range(0, AHEAD, 100):
        files = [("file", (f"{name}.md", TEXT.format(name=name).encode())) for name in range(first, first + 100)]
        http.post("/api/v1/bases/bench/documents", files=files).raise_for_status()
    nothing = _ask(UPLOADS, lambda _: http.get("/healthz"))
    url = "/api/v1/bases/bench/documents"
    accepted = _ask(
        UPLOADS, lambda n: http.post(url, params={"name": f"up{n}.md"}, content=TEXT.format(name=f"up{n}").encode())
    )
    counts: dict[str, Any] = http.get("/api/v1/bases/bench/counts").json()["by_status"]
    return nothing, accepted, counts["queued"] + counts["indexing"]


def _ask(times: int, send: Callable[[int], httpx2.Response]) -> Latency:
    def timed(number: int) -> float:
        began = time.perf_counter()
        send(number).raise_for_status()
        return (time.perf_counter() - began) * 1000

    began = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as clients:
        taken = list(clients.map(timed, range(times)))
    took = time.perf_counter() - began
    cuts = quantiles(taken, n=100)
    return Latency(p50=cuts[49], p99=cuts[98], rate=times / took)


def report() -> dict[str, float]:
    """Print what was measured."""
    nothing, accepted, waiting = measure()
    print(f"Accepting uploads over HTTP, {CLIENTS} clients at once, while two workers index")
    for what, one in (("a request that does nothing", nothing), ("an upload, durable", accepted)):
        print(f"  {what:28} p50 {one.p50:6.1f} ms, p99 {one.p99:6.1f} ms, {one.rate:6.0f}/s")
    print(f"  = {accepted.p50 / nothing.p50:.1f} times as long; {waiting} documents still waited at the end")
    return {
        "nothing_p50": round(nothing.p50, 1),
        "upload_p50": round(accepted.p50, 1),
        "upload_p99": round(accepted.p99, 1),
        "uploads_a_second": round(accepted.rate),
    }


if __name__ == "__main__":
    report()
