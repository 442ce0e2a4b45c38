"""A worker program for tests with real processes: `python -m tests.support.worker MODE FOLDER FAULTS`.

It reads its settings from the environment. MODE is the way it gets work: `looks` polls the database, `rings` answers
the rings of its own reconciler, and `serves` starts worker processes.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.engine.loop import Loop
from holdfast.engine.reconciler import Reconciler
from holdfast.engine.schedulers.inline import InlineScheduler
from holdfast.engine.worker import LocalWorker
from holdfast.settings import Settings
from holdfast.wiring import open_scheduler
from tests.support.scripted_indexer import Fault, Workshop, note

if TYPE_CHECKING:
    from collections.abc import Callable


def answer_rings(crew: LocalWorker, settings: Settings) -> None:
    parts = crew.parts
    carrying = InlineScheduler(settings)
    carrying.start(crew)
    reconciler = Reconciler(parts.store, carrying, tuple(parts.indexers), parts.rules, reach=parts.failpoint)
    listener = parts.notifier.listen()
    tending = Loop("reconciler", reconciler.reconcile, listener, settings.period)

    def stop() -> None:
        tending.stop()
        crew.stop()

    when_told(stop)
    parts.failpoint("listening")
    tending.run()
    carrying.stop()
    listener.close()
    crew.close()


def serve(crew: LocalWorker, settings: Settings, folder: Path) -> None:
    carrying = open_scheduler(settings)
    told = threading.Event()
    when_told(told.set)
    carrying.start(crew)
    note(folder, "serving")
    told.wait()
    carrying.stop()


def when_told(stop: Callable[[], None]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop())


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(threadName)s %(message)s")
    mode, folder, shown = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    settings = Settings.from_environment()
    crew = LocalWorker(
        Workshop(settings=settings, folder=folder, faults=tuple(Fault(**one) for one in json.loads(shown)))
    )
    if mode == "serves":
        serve(crew, settings, folder)
        return
    crew.parts.failpoint("start")
    if mode == "rings":
        answer_rings(crew, settings)
    else:
        crew.work()


if __name__ == "__main__":
    main()
