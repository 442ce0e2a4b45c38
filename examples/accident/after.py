"""The same accidents with the guard: paid once, and the old work that wakes up late is never seen.

Run it with `python examples/accident/after.py`; it needs no server and takes less than a minute.
It ends with 0 when the guard held in both scenes, and with 1 when it did not.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.accident.before import CHAPTERS, HANDBOOK, NEW, OLD, TIMEOUT_SECONDS, Rows, headline
from examples.accident.stage import Stage, redis_asked_for
from examples.processes import until


def main() -> int:
    """Play both scenes, and show what was asked beside what happened."""
    with Stage("guarded", redis_url=redis_asked_for(__doc__)) as stage:
        once, bill = pay_once(stage)
        newest, reading = keep_the_new(stage)
        stage.table(bill + reading)
    if not once:
        print("\nThe guard did not hold: something was paid twice, or not done at all.")
    if not newest:
        print("\nThe guard did not hold: a reader sees old work.")
    return 0 if once and newest else 1


def pay_once(stage: Stage) -> tuple[bool, Rows]:
    """Let a task outlive the visibility timeout; the broker delivers it again, and the guard answers."""
    stage.scene("One long task, sent once")
    stage.worker(visibility_timeout=TIMEOUT_SECONDS)
    stage.worker(visibility_timeout=TIMEOUT_SECONDS)
    stage.tell(f"two workers are ready; the visibility timeout is {TIMEOUT_SECONDS} s")
    stage.write("handbook", HANDBOOK)
    task = stage.send("handbook")
    stage.tell(f"sent once: index the handbook, {CHAPTERS} chunks of one second each")
    until(lambda: stage.paid("handbook") > 0, "no worker begins")
    stage.tell("the first worker begins to embed")
    until(lambda: stage.delivered(task) > 1, "the broker does not deliver it again")
    stage.tell("the second worker receives the same task, and is told that the first still works on it")
    until(lambda: stage.result("handbook") == HANDBOOK, "the handbook is not indexed")
    stage.tell("the handbook is indexed")
    until(lambda: stage.delivered(task) == stage.ended(task), "a delivery is still at work")
    delivered, paid = stage.delivered(task), stage.paid("handbook")
    stage.tell(f"delivered {delivered} times; paid: {paid}")
    rows = [
        ("index the handbook, once", f"delivered {delivered} times, done once"),
        (f"embed its {CHAPTERS} chunks", f"{paid} embeddings paid"),
    ]
    return paid == CHAPTERS and delivered > 1, rows


def keep_the_new(stage: Stage) -> tuple[bool, Rows]:
    """Pause a process in the middle of its work, and wake it up when the world has moved on."""
    stage.scene("Old work wakes up late")
    stage.worker()
    stage.worker()
    stage.tell("two workers are ready; the visibility timeout is an hour")
    stage.write("policy", OLD)
    old = stage.send("policy")
    stage.tell(f"sent: index the policy  ({headline(OLD)})")
    until(lambda: stage.paid("policy") == len(OLD.splitlines()), "no worker comes to the last chunk")
    paused = stage.stop_child("policy")
    stage.tell("its process is paused just before it writes, as by a machine under load")
    stage.write("policy", NEW)
    stage.send("policy")
    stage.tell(f"sent: index the policy  ({headline(NEW)})")
    until(lambda: stage.result("policy") == NEW, "the new policy is not indexed")
    stage.tell(f"its lease ran out and the other worker has finished; a reader finds: {headline(NEW)}")
    stage.go_on(paused)
    stage.tell("the paused process goes on")
    until(lambda: stage.delivered(old) == stage.ended(old), "the old work does not end")
    results = stage.tasks.store.scan_iter("accident:result:policy:*")
    late = [key for key in results if headline(OLD) in written(stage, key)]
    seen = stage.result("policy")
    stage.tell(f"it has written its result, under its own fence; a reader finds: {headline(seen)}")
    rows = [("show the newest policy, version 2", f"{len(late)} late write, a reader finds: {headline(seen)}")]
    return len(late) == 1 and seen == NEW, rows


def written(stage: Stage, key: str) -> str:
    """Return what was written under a key, seen or not."""
    return str(stage.tasks.store.get(key))


if __name__ == "__main__":
    sys.exit(main())
