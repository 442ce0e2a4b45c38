"""The guard on an event loop: its calls run in threads, at most so many at once, and never block the loop."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.states import Status
from holdfast.errors import BadRequest
from holdfast.guard import Guard
from holdfast.settings import Settings
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

THREADS = 3


@pytest.fixture
def guard(database_url: str) -> Iterator[Guard]:
    made = Guard(Settings(database=database_url, database_pool=THREADS))
    yield made
    made.close()


async def until(happened: threading.Event) -> int:
    """Wait without a thread; return how often the loop went on meanwhile."""
    turns = 0
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not happened.is_set():
            await asyncio.sleep(0.01)
            turns += 1
    return turns


def test_a_coroutine_requests_queries_and_cancels_work(guard: Guard) -> None:
    work = guard.work("cards")

    async def use() -> None:
        assert (await work.aask("42", requester="alice")).accepted
        assert (await work.aask("42")).reason == "already_in_progress"
        assert (await work.astatus("42")).status is Status.QUEUED
        assert (await work.acancel("42", requester="alice")).accepted
        assert (await work.astatus("42")).status is Status.NOT_INDEXED
        with pytest.raises(BadRequest, match="starts no work"):
            await work.aask("42", operation="delete")

    asyncio.run(use())


def test_the_loop_goes_on_while_the_database_makes_a_request_wait(guard: Guard) -> None:
    work = guard.work("cards")
    work.admit("42")
    locked, release, done = threading.Event(), threading.Event(), threading.Event()

    def hold() -> None:
        with guard.store.database.writing(durable=True) as tx:
            tx.lock_owners({guard.store.owner("cards", "42").id})
            locked.set()
            assert release.wait(PATIENCE_SECONDS)

    async def use() -> None:
        asked = asyncio.create_task(work.acancel("42"))
        asked.add_done_callback(lambda _: done.set())
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert not asked.done()
        release.set()
        await until(done)
        assert (await asked).accepted

    holder = threading.Thread(target=hold)
    holder.start()
    assert locked.wait(PATIENCE_SECONDS)
    asyncio.run(use())
    holder.join()


def test_only_so_many_calls_run_at_once_as_the_pool_has_connections(guard: Guard) -> None:
    running, most, mutex = 0, 0, threading.Lock()
    full, release = threading.Event(), threading.Event()

    def call() -> None:
        nonlocal running, most
        with mutex:
            running += 1
            most = max(most, running)
            if running == THREADS:
                full.set()
        assert release.wait(PATIENCE_SECONDS)
        with mutex:
            running -= 1

    async def use() -> None:
        calls = [asyncio.create_task(guard.in_thread(call)) for _ in range(10 * THREADS)]
        await until(full)
        release.set()
        await asyncio.gather(*calls)

    asyncio.run(use())
    assert most == THREADS


def test_a_call_sees_the_context_of_its_caller(guard: Guard) -> None:
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant")

    async def use() -> str:
        tenant.set("7")
        return await guard.in_thread(tenant.get)

    assert asyncio.run(use()) == "7"


def test_a_request_whose_caller_is_cancelled_still_counts(guard: Guard) -> None:
    work = guard.work("cards")
    begun, release = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        assert release.wait(PATIENCE_SECONDS)
        work.admit("42")

    async def use() -> None:
        asked = asyncio.create_task(guard.in_thread(slow))
        await until(begun)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        release.set()

    asyncio.run(use())
    guard.close()  # waits for the call
    assert work.status("42").status is Status.QUEUED


def test_a_forked_child_has_threads_of_its_own(guard: Guard) -> None:
    work = guard.work("cards")
    asyncio.run(work.aask("42"))
    child = os.fork()
    if child == 0:
        accepted = False
        try:
            accepted = asyncio.run(work.aask("43")).accepted
        finally:
            os._exit(0 if accepted else 1)
    assert os.waitpid(child, 0)[1] == 0
