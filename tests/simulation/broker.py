"""A broker that keeps, loses, doubles and forgets messages, behind the production scheduler protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.engine.slot import Ring
    from tests.simulation.world import World


@dataclass(eq=False)
class Message:
    ring: Ring


class Broker:
    """Queues rings; a message is under way until it is acknowledged."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.queue: list[Message] = []
        self.unacknowledged: list[Message] = []

    def start(self, crew: object) -> None:
        """Nothing to start: the world delivers."""

    def stop(self) -> None:
        """Nothing to stop."""

    def room(self, kind: str) -> int:  # noqa: ARG002
        return 4

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
        if message in self.unacknowledged:  # unless the broker was flushed meanwhile
            self.unacknowledged.remove(message)

    def returned(self, message: Message) -> None:
        """Deliver again what a worker took and never acknowledged."""
        if message in self.unacknowledged:
            self.unacknowledged.remove(message)
            self.queue.append(message)

    def redeliver(self) -> None:
        """The visibility timeout passed: a message that is at work comes a second time."""
        self.queue.extend(Message(message.ring) for message in self.unacknowledged)

    def flush(self) -> None:
        self.queue.clear()
        self.unacknowledged.clear()
