"""What came of requests, told to people: each answer with its message, and how the command ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.exit_codes import Exit, answer, together
from holdfast.cli.format import many, worded
from holdfast.cli.progress import FEW, follow
from holdfast.cli.wait_targets import SomeDocuments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.cli.command import Face
    from holdfast.service.client import Holdfast
    from holdfast.service.schemas import Reply, Standing

ENDS = {"failed": Exit.FAILED, "degraded": Exit.PARTLY}
ASKED = {"accepted": "accepted", "joined": "already under way", "skipped": "unchanged", "rejected": "refused"}


def tell(face: Face, replies: Sequence[Reply], done: str = "accepted") -> None:
    """Tell the answers: each of few, and of many only those that were not accepted."""
    for one in replies:
        if one.accepted and len(replies) <= FEW:
            face.terminal.say(f"{done}: {_called(one)}")
        elif not one.accepted:
            named = {"document": one.document, "job": one.job}
            way = ", ".join(f"{word} {value}" for word, value in named.items() if value)
            told = f"{ASKED[str(one.verdict)]}: {one.name}: {one.message}" + (f" ({way})" if way else "")
            (face.terminal.say if str(one.verdict) == "skipped" else face.terminal.warn)(told)
    if len(replies) > FEW:
        face.terminal.say(f"{done}: {many(sum(one.accepted for one in replies), 'document')} of {len(replies):,}")


def finish(face: Face, library: Holdfast, base: str, replies: Sequence[Reply], *, wait: bool) -> Exit:
    """Wait for what was accepted, tell how it ended, and return how the command ends."""
    asked = {one.document: one.name for one in replies if one.accepted and one.document is not None}
    standings = settle(face, library, base, asked) if wait and asked else []
    if face.terminal.json:
        face.terminal.document({"base": base, "replies": replies, "documents": standings})
    elif wait:
        sum_up(face, base, standings)
    else:
        for one in replies:
            face.terminal.row(one.document, one.name, one.status, one.job)
        if asked:
            face.terminal.say(f"Not waited for. Look: {looking(face, base, list(asked))}")
    refused = [answer(str(one.verdict), one.reason) for one in replies if not one.accepted or not wait]
    return together([*refused, *map(ended_as, standings)])


def settle(face: Face, library: Holdfast, base: str, names: Mapping[int, str]) -> list[Standing]:
    """Wait until documents have come to rest; each is told when it has."""

    def ended(one: Standing) -> None:
        if not face.terminal.json:
            face.terminal.row(one.id, names[one.id], one.status, one.why.message if one.why else "")

    followed = SomeDocuments(library, base, names)
    follow(face, library, followed, again=looking(face, base, list(names)), ended=ended)
    return list(followed.standings.values())


def ended_as(one: Standing) -> Exit:
    """Tell how a command ends that waited for this document."""
    return ENDS.get(str(one.status), Exit.OK)


def looking(face: Face, base: str, documents: Sequence[int]) -> str:
    """Return the command that shows the status of documents."""
    return face.hint("status", documents[0], base=base) if len(documents) == 1 else face.hint("ls", base=base)


def sum_up(face: Face, base: str, standings: Sequence[Standing]) -> None:
    """Tell how many documents ended how."""
    counted: dict[str, int] = {}
    for one in standings:
        counted[worded(one.status)] = counted.get(worded(one.status), 0) + 1
    if len(standings) > 1:
        face.terminal.say(", ".join(f"{number:,} {status}" for status, number in sorted(counted.items())))
    if counted.get("failed"):
        face.terminal.say(f"Try again what failed: {face.hint('retry', '--all', base=base)}")


def _called(one: Reply) -> str:
    return (
        f"{one.name} (document {one.document})" if one.document and one.name else one.name or f"document {one.document}"
    )
