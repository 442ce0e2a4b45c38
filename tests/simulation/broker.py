"""A simulated broker that loses, duplicates and forgets messages. It implements the scheduler protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.engine.slot import Ring
    from tests.simulation.world import World


@dataclass(eq=False)
class Message:
    ring: Ring


class Broker:
    """Queues rings. A message stays unacknowledged until its worker is done."""

    needs_rings = True

    def __init__(self, world: World) -> None:
        self._world = world
        self.queue: list[Message] = []
        self.unacknowledged: list[Message] = []

    def start(self, crew: object) -> None:
        """Do nothing, because the world delivers the messages."""

    def stop(self) -> None:
        """Do nothing, because nothing runs here."""

    def room(self, kind: str, outstanding: Callable[[], int]) -> int:  # noqa: ARG002
        return 4 - outstanding()

    def carry(self, rings: Sequence[Ring]) -> None:
        for ring in rings:
            if self._world.happens("lost_ring", 0.1):
                continue
            self.queue.append(Message(ring))
            if self._world.happens("duplicate", 0.15):
                self.queue.append(Message(ring))

    def deliver(self) -> Message:
        message = self.queue.pop(self._world.rng.randrange(len(self.queue)))
        self.unacknowledged.append(message)
        return message

    def acknowledge(self, message: Message) -> None:
        if message in self.unacknowledged:  # a flush may have removed it
            self.unacknowledged.remove(message)

    def returned(self, message: Message) -> None:
        """Queue a message again that a worker took and did not acknowledge."""
        if message in self.unacknowledged:
            self.unacknowledged.remove(message)
            self.queue.append(message)

    def redeliver(self) -> None:
        """Queue every unacknowledged message a second time, as after a visibility timeout."""
        self.queue.extend(Message(message.ring) for message in self.unacknowledged)

    def flush(self) -> None:
        self.queue.clear()
        self.unacknowledged.clear()
