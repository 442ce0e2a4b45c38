"""How a command ends: every error has its exit code, and the code that HTTP tells."""

from __future__ import annotations

from typing import get_args

import pytest

from holdfast import errors
from holdfast.api import problems
from holdfast.auth.principal import Scope
from holdfast.bases.cards import FORMS
from holdfast.catalog.repository import Kind, OnDuplicate
from holdfast.cli import exit_codes as exits
from holdfast.cli import options
from holdfast.cli.exit_codes import Exit, answer, meaning, together, told
from holdfast.documents.lists import Order
from holdfast.engine.admission import Verdict
from holdfast.errors import BadRequest, Conflict, HoldfastError, NotNow, Outage, Permanent, Transient
from holdfast.search.answers import Mode


def kinds(kind: type[HoldfastError] = HoldfastError) -> list[type[HoldfastError]]:
    return [one for below in kind.__subclasses__() for one in (below, *kinds(below))]


OURS = sorted({one for one in kinds() if one.__module__.startswith("holdfast.")}, key=lambda one: one.__name__)


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_every_error_has_a_row(kind: type[HoldfastError]) -> None:
    assert any(one.__name__ in exits.EXITS for one in kind.__mro__)


def test_every_row_is_of_an_error() -> None:
    assert exits.EXITS.keys() <= {one.__name__ for one in OURS}


def test_every_error_that_http_tells_has_an_exit_of_its_own() -> None:
    assert {kind.__name__ for kind, _ in problems.MEANINGS} <= exits.EXITS.keys()


@pytest.mark.parametrize(
    ("error", "code", "exit_"),
    [
        (BadRequest("no"), "bad_request", Exit.USAGE),
        (errors.UnknownBase("x"), "unknown_base", Exit.NOT_FOUND),
        (errors.NameTaken("x"), "name_taken", Exit.CONFLICT),
        (NotNow("not_terminal", "no"), "not_terminal", Exit.CONFLICT),
        (Conflict("quota_exhausted", "no"), "quota_exhausted", Exit.TEMPORARY),
        (errors.Forbidden("no"), "forbidden", Exit.DENIED),
        (errors.Unauthorized("who"), "unauthorized", Exit.DENIED),
        (errors.StoreBusy("no"), "database_busy", Exit.TEMPORARY),
        (errors.StoreTooNew("no"), "database_failed", Exit.FAILED),
        (Transient("slow"), "slow", Exit.TEMPORARY),
        (Outage("down"), "down", Exit.TEMPORARY),
        (Permanent("bad"), "bad", Exit.FAILED),
        (RuntimeError("oh"), "internal_error", Exit.FAILED),
    ],
)
def test_an_error_is_told_by_its_code_and_its_exit(error: Exception, code: str, exit_: Exit) -> None:
    assert meaning(error) == (exit_, code)


def test_a_conflict_names_what_stands_in_the_way() -> None:
    error = Conflict("not_terminal", "Wait.", verdict="rejected", status="indexing", document=7, job="j1")
    assert told(error)["error"] == {
        "code": "not_terminal",
        "message": "Wait.",
        "exit": 4,
        "verdict": "rejected",
        "status": "indexing",
        "document": 7,
        "job": "j1",
    }


@pytest.mark.parametrize(
    ("verdict", "reason", "exit_"),
    [
        (Verdict.ACCEPTED, "added", Exit.OK),
        (Verdict.SKIPPED, "same_content", Exit.OK),
        (Verdict.JOINED, "same_content", Exit.CONFLICT),
        (Verdict.REJECTED, "name_taken", Exit.CONFLICT),
        (Verdict.REJECTED, "quota_exhausted", Exit.TEMPORARY),
    ],
)
def test_an_answer_decides_the_end(verdict: Verdict, reason: str, exit_: Exit) -> None:
    assert answer(verdict, reason) is exit_


@pytest.mark.parametrize(
    ("ends", "end"),
    [
        ([], Exit.OK),
        ([Exit.OK, Exit.OK], Exit.OK),
        ([Exit.CONFLICT, Exit.CONFLICT], Exit.CONFLICT),
        ([Exit.OK, Exit.CONFLICT], Exit.PARTLY),
        ([Exit.PARTLY, Exit.FAILED], Exit.PARTLY),
        ([Exit.FAILED, Exit.CONFLICT], Exit.FAILED),
    ],
)
def test_several_ends_make_one(ends: list[Exit], end: Exit) -> None:
    assert together(ends) is end


def test_the_words_that_options_allow_are_those_of_the_library() -> None:
    assert get_args(options.OnDuplicate) == tuple(OnDuplicate)
    assert get_args(options.Order) == tuple(Order)
    assert get_args(options.Mode) == tuple(Mode)
    assert get_args(options.Scope) == tuple(Scope)
    assert get_args(options.CardForm) == tuple(FORMS)
    assert [str(one) for one in options.Kind] == list(Kind)
