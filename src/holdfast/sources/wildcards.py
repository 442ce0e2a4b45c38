"""Translates the wildcards of git into regular expressions over bytes.

The expressions do not backtrack: between two stars the first match is as good as any later one, so each part is an
atomic group. A hostile pattern takes no longer than others.
"""

from __future__ import annotations

import re

NAMED_CLASSES = {
    b"alnum": rb"0-9A-Za-z",
    b"alpha": rb"A-Za-z",
    b"blank": rb" \t",
    b"cntrl": rb"\x00-\x1f\x7f",
    b"digit": rb"0-9",
    b"graph": rb"!-~",
    b"lower": rb"a-z",
    b"print": rb" -~",
    b"punct": rb"!-/:-@\[-`{-~",
    b"space": rb"\t-\r ",
    b"upper": rb"A-Z",
    b"xdigit": rb"0-9A-Fa-f",
}
NAMED_CLASS = re.compile(rb"\[:([^\]]*):\]")


class InvalidPattern(Exception):
    """The pattern has an unclosed bracket or an unknown class; git matches nothing with it."""


def translate_pattern(pattern: bytes) -> bytes:
    """Translate a pattern for a whole path."""
    if not pattern:
        raise InvalidPattern
    stretches: list[list[bytes]] = [[]]  # between `**`
    for part in _parts(pattern):
        if part.strip(b"*") or len(part) < len(b"**"):
            stretches[-1].append(_name(part))
        else:
            stretches.append([])
    first, *others = stretches
    if not others:
        return b"/".join(first)
    *middle, last = others
    before = b"".join(part + b"/" for part in first)
    between = b"".join(b"(?>(?:[^/]*/)*?" + b"/".join(stretch) + b"/)" for stretch in middle if stretch)
    return before + between + (b"(?:[^/]*/)*" + b"/".join(last) if last else b".*")


def _parts(pattern: bytes) -> list[bytes]:
    """Split at slashes, except in brackets."""
    parts = [b""]
    place = 0
    while place < len(pattern):
        start, sign = place, pattern[place : place + 1]
        place += 1
        if sign == b"[":
            _, place = _bracket(pattern, place)
        elif sign == b"\\":
            place += 1
        if pattern[start:place] in {b"/", b"\\/"}:
            parts.append(b"")
        else:
            parts[-1] += pattern[start:place]
    return parts


def _name(pattern: bytes) -> bytes:
    """Translate a pattern for one part of a path. Only the last `*` may backtrack."""
    chunks = [b""]
    place = 0
    while place < len(pattern):
        sign = pattern[place : place + 1]
        place += 1
        if sign == b"*":
            chunks.append(b"")
        elif sign == b"?":
            chunks[-1] += b"[^/]"
        elif sign == b"[":
            translated, place = _bracket(pattern, place)
            chunks[-1] += translated
        elif sign == b"\\":
            if place == len(pattern):
                raise InvalidPattern
            chunks[-1] += re.escape(pattern[place : place + 1])
            place += 1
        else:
            chunks[-1] += re.escape(sign)
    first, *others = chunks
    if not others:
        return first
    *middle, last = others
    return first + b"".join(b"(?>[^/]*?" + chunk + b")" for chunk in middle if chunk) + b"[^/]*" + last


def _bracket(pattern: bytes, place: int) -> tuple[bytes, int]:
    """Translate a bracket expression; return it and the position after it."""
    negated = pattern[place : place + 1] in {b"!", b"^"}
    place += negated
    members: list[bytes] = []
    start = place
    while place == start or pattern[place : place + 1] != b"]":
        named = NAMED_CLASS.match(pattern, place)
        if named:
            if named[1] not in NAMED_CLASSES:
                raise InvalidPattern
            members.append(NAMED_CLASSES[named[1]])
            place = named.end()
            continue
        low, place = _member(pattern, place)
        if pattern[place : place + 1] == b"-" and pattern[place + 1 : place + 2] not in {b"]", b""}:
            high, place = _member(pattern, place + 1)
            members += [_escaped(low) + b"-" + _escaped(high)] if low <= high else []
        else:
            members.append(_escaped(low))
    inside = b"".join(members)
    if negated:
        return b"[^/" + inside + b"]", place + 1
    return (b"(?!/)[" + inside + b"]" if inside else b"(?!)"), place + 1


def _member(pattern: bytes, place: int) -> tuple[bytes, int]:
    """Read one byte of a bracket expression, with or without a backslash."""
    place += pattern[place : place + 1] == b"\\"
    if place >= len(pattern):
        raise InvalidPattern
    return pattern[place : place + 1], place + 1


def _escaped(byte: bytes) -> bytes:
    return b"\\x%02x" % byte[0]
