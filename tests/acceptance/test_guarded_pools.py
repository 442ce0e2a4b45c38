"""Guarded tasks in every pool of Celery's workers: results, canvases, duplicates and revoke."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from celery import chord, states

from holdfast.engine.states import Status
from tests.acceptance.test_canvas import START, Stage, get
from tests.support.processes import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import Valkey

pytestmark = pytest.mark.celery
POOLS = ("prefork", "threads", "solo", "gevent", "eventlet")


@pytest.fixture(scope="module", params=POOLS)
def pool(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def stage(pool: str, valkey: Valkey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp(pool)
    database = f"sqlite:///{folder}/guard.db"
    made = Stage(valkey.url, valkey.url.replace("/0", "/1"), folder, database=database, pool=pool)
    try:
        yield made
    finally:
        made.close()


def test_a_canvas_and_a_late_call_get_the_results(stage: Stage, pool: str) -> None:
    _, steps = stage.steps(f"pool_{pool}")
    body = chord([steps.step("a", START), steps.step("b", START)], steps.together()).apply_async()
    assert get(body) == "start>a+start>b"
    assert get(steps.step("a", START).apply_async()) == "start>a"
    assert stage.count("ran", steps.key) == 1


def test_revoke_ends_the_run(stage: Stage, pool: str) -> None:
    """A worker without pool processes ends it at the next checkpoint; a busy solo worker reads no commands."""
    _, steps = stage.steps(f"revoke_{pool}", "hold")
    result = steps.step("a", START).apply_async()
    until(lambda: stage.count("ran", steps.key) == 1, "it does not run")
    if pool == "solo":
        stage.tasks.guarded_step.cancel_call(result.id)
    else:
        stage.tasks.app.control.revoke(result.id, terminate=True)
    until(lambda: stage.tasks.app.AsyncResult(result.id).state == states.REVOKED, "it is not revoked")
    assert stage.guard.works["guarded.step"].status(steps.key).status is Status.NOT_INDEXED
    stage.release(steps.key)
    assert get(stage.tasks.guarded_step.delay(START, key=steps.key)) == "start>a"


def test_a_failed_attempt_is_repeated(stage: Stage, pool: str) -> None:
    _, steps = stage.steps(f"again_{pool}", "transient")
    assert get((steps.step("a", START) | steps.after()).apply_async()) == "start>a|after"
    assert stage.count("ran", steps.key) == 2
