"""Every error has its exit code, and the command line uses the same error codes as HTTP."""

from __future__ import annotations

from typing import get_args

import pytest

from holdfast import errors
from holdfast.auth.principal import Scope
from holdfast.bases.cards import EXPORT_FORMATS
from holdfast.catalog.repository import ItemKind, OnDuplicate
from holdfast.cli import options
from holdfast.cli.exit_codes import ExitCode, combine_exit_codes, error_exit_code, error_to_dict, reply_exit_code
from holdfast.documents.lists import Order
from holdfast.engine.admission import Verdict
from holdfast.errors import BadRequest, Conflict, HoldfastError, Outage, Permanent, StateConflict, Transient
from holdfast.search.answers import Mode


def kinds(kind: type[HoldfastError] = HoldfastError) -> list[type[HoldfastError]]:
    return [one for below in kind.__subclasses__() for one in (below, *kinds(below))]


OURS = sorted({one for one in kinds() if one.__module__.startswith("holdfast.")}, key=lambda one: one.__name__)


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_every_error_has_an_exit_code_and_an_http_status_that_mean_an_error(kind: type[HoldfastError]) -> None:
    assert kind.exit_code is not ExitCode.OK
    assert kind.http_status is None or kind.http_status >= 400


def test_only_internal_errors_have_no_http_status() -> None:
    hidden = {one for one in OURS if one.http_status is None}
    of_tasks = {one for one in OURS if issubclass(one, errors.GuardedWorkFailed)}
    assert hidden == {errors.StaleLease, errors.BadResponse} | of_tasks


@pytest.mark.parametrize(
    ("error", "code", "exit_"),
    [
        (BadRequest("no"), "bad_request", ExitCode.USAGE),
        (errors.UnknownBase("x"), "unknown_base", ExitCode.NOT_FOUND),
        (errors.NameTaken("x"), "name_taken", ExitCode.CONFLICT),
        (StateConflict("not_terminal", "no"), "not_terminal", ExitCode.CONFLICT),
        (Conflict("quota_exhausted", "no"), "quota_exhausted", ExitCode.TEMPORARY),
        (errors.Forbidden("no"), "forbidden", ExitCode.DENIED),
        (errors.Unauthorized("who"), "unauthorized", ExitCode.DENIED),
        (errors.StoreBusy("no"), "database_busy", ExitCode.TEMPORARY),
        (errors.StoreTooNew("no"), "database_failed", ExitCode.FAILED),
        (Transient("slow"), "slow", ExitCode.TEMPORARY),
        (Outage("down"), "down", ExitCode.TEMPORARY),
        (Permanent("bad"), "bad", ExitCode.FAILED),
    ],
)
def test_each_error_has_its_code_and_its_exit_code(error: HoldfastError, code: str, exit_: ExitCode) -> None:
    assert (error_exit_code(error), error.code) == (exit_, code)


def test_a_conflict_names_the_document_and_the_job_that_cause_it() -> None:
    error = Conflict("not_terminal", "Wait.", verdict="rejected", status="indexing", document=7, job="j1")
    assert error_to_dict(error)["error"] == {
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
        (Verdict.ACCEPTED, "added", ExitCode.OK),
        (Verdict.SKIPPED, "same_content", ExitCode.OK),
        (Verdict.JOINED, "same_content", ExitCode.CONFLICT),
        (Verdict.REJECTED, "name_taken", ExitCode.CONFLICT),
        (Verdict.REJECTED, "quota_exhausted", ExitCode.TEMPORARY),
    ],
)
def test_the_verdict_of_a_reply_decides_the_exit_code(verdict: Verdict, reason: str, exit_: ExitCode) -> None:
    assert reply_exit_code(verdict, reason) is exit_


@pytest.mark.parametrize(
    ("ends", "end"),
    [
        ([], ExitCode.OK),
        ([ExitCode.OK, ExitCode.OK], ExitCode.OK),
        ([ExitCode.CONFLICT, ExitCode.CONFLICT], ExitCode.CONFLICT),
        ([ExitCode.OK, ExitCode.CONFLICT], ExitCode.PARTIAL),
        ([ExitCode.PARTIAL, ExitCode.FAILED], ExitCode.PARTIAL),
        ([ExitCode.FAILED, ExitCode.CONFLICT], ExitCode.FAILED),
    ],
)
def test_several_exit_codes_are_combined_into_one(ends: list[ExitCode], end: ExitCode) -> None:
    assert combine_exit_codes(ends) is end


def test_the_choices_of_options_are_those_of_the_library() -> None:
    assert get_args(options.OnDuplicate) == tuple(OnDuplicate)
    assert get_args(options.Order) == tuple(Order)
    assert get_args(options.Mode) == tuple(Mode)
    assert get_args(options.Scope) == tuple(Scope)
    assert get_args(options.CardForm) == tuple(EXPORT_FORMATS)
    assert [str(one) for one in options.Kind] == list(ItemKind)
