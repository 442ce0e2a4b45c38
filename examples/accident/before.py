"""The accident, before protection: plain Celery pays twice, and old work overwrites new.

Run it with `python examples/accident/before.py`; it needs no server and takes less than a minute.
It ends with 0 when both accidents were shown, and with 1 when one of them was not.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.accident.stage import Stage, redis_asked_for
from examples.processes import until, wait

CHAPTERS = 12
HANDBOOK = "\n".join(f"Chapter {number} of the handbook." for number in range(1, CHAPTERS + 1))
OLD = "Version 1: refunds within 30 days.\nWrite to the shop.\nKeep the receipt.\nWe pay the postage."
NEW = OLD.replace("Version 1: refunds within 30 days.", "Version 2: refunds within 14 days.")
TIMEOUT_SECONDS = 3

Rows = list[tuple[str, str]]


def main() -> int:
    """Play both scenes, and show what was asked beside what happened."""
    with Stage("plain", redis_url=redis_asked_for(__doc__)) as stage:
        twice, bill = pay_twice(stage)
        lost, reading = lose_the_new(stage)
        stage.table(bill + reading)
    if not twice:
        print("\nThe first accident did not happen: nothing was paid twice.")
    if not lost:
        print("\nThe second accident did not happen: the reader sees the new version.")
    return 0 if twice and lost else 1


def pay_twice(stage: Stage) -> tuple[bool, Rows]:
    """Let a task outlive the visibility timeout, so that the broker takes its worker for dead."""
    stage.scene("One long task, sent once")
    stage.worker(visibility_timeout=TIMEOUT_SECONDS)
    stage.worker(visibility_timeout=TIMEOUT_SECONDS)
    stage.tell(f"two workers are ready; the visibility timeout is {TIMEOUT_SECONDS} s")
    stage.write("handbook", HANDBOOK)
    task = stage.send("handbook")
    stage.tell(f"sent once: index the handbook, {CHAPTERS} chunks of one second each")
    until(lambda: stage.paid("handbook") > 0, "no worker begins")
    stage.tell("a worker begins to embed")
    if wait(lambda: stage.delivered(task) > 1, seconds=CHAPTERS):
        stage.tell("the broker gives the same task to the other worker, while the first is still at work")
    until(lambda: stage.succeeded(task) > 0, "the handbook is not indexed")
    stage.tell(f"the first copy is done; paid so far: {stage.paid('handbook')}")
    if stage.delivered(task) > 1:
        until(lambda: stage.succeeded(task) > 1, "the second copy does not end")
        stage.tell(f"the second copy is done; paid so far: {stage.paid('handbook')}")
    delivered, paid, overlap = stage.delivered(task), stage.paid("handbook"), stage.overlap("handbook")
    if delivered > stage.succeeded(task):
        stage.tell("and the same task is running once more; we stop the workers here")
    rows = [
        ("index the handbook, once", f"delivered {delivered} times"),
        (f"embed its {CHAPTERS} chunks", f"{paid} embeddings paid"),
        ("one process at work on it", f"two at once for {overlap:.1f} s"),
    ]
    return paid > CHAPTERS and overlap > 0, rows


def lose_the_new(stage: Stage) -> tuple[bool, Rows]:
    """Pause a process in the middle of its work, and wake it up when the world has moved on."""
    stage.scene("Old work wakes up late")
    stage.worker()
    stage.worker()
    stage.tell("two workers are ready; the visibility timeout is an hour, so nothing is delivered twice")
    stage.write("policy", OLD)
    old = stage.send("policy")
    stage.tell(f"sent: index the policy  ({headline(OLD)})")
    until(lambda: stage.paid("policy") > 1, "no worker begins")
    paused = stage.stop_child("policy")
    stage.tell("its process is paused half way, as by a machine under load")
    stage.write("policy", NEW)
    new = stage.send("policy")
    stage.tell(f"sent: index the policy  ({headline(NEW)})")
    until(lambda: stage.succeeded(new) == 1, "version 2 is not indexed")
    seen = stage.result("policy") == NEW
    stage.tell(f"the other worker has finished; a reader finds: {headline(stage.result('policy'))}")
    stage.go_on(paused)
    stage.tell("the paused process goes on")
    until(lambda: stage.succeeded(old) == 1, "version 1 does not end")
    stage.tell(f"it has finished too; a reader finds: {headline(stage.result('policy'))}")
    rows = [("show the newest policy, version 2", f"a reader finds: {headline(stage.result('policy'))}")]
    return seen and stage.result("policy") == OLD, rows


def headline(text: str) -> str:
    """Return the first line of a text."""
    return text.partition("\n")[0] or "nothing"


if __name__ == "__main__":
    sys.exit(main())
