"""The reason and the cause in a message are texts of the catalogue, so that they exist in every language."""

from __future__ import annotations

import ast

from holdfast.engine.problems import Problem
from holdfast.engine.slot import Fault
from holdfast.errors import RESTORING, BaseFailed, Permanent
from holdfast.messages import load_catalogue, translations_for
from holdfast.web.render import Formatter
from tests.support.message_sites import error_classes, trees

CHINESE = translations_for("zh")


def shown(error: BaseFailed) -> str:
    """Return the Chinese message of an error, from the fields that the API sends."""
    params = {name: value for name, value in error.params.items() if name != "message"}
    return Formatter(CHINESE).explain(Problem(code=error.subcode or error.code, message=str(error), params=params))


def test_a_failed_base_names_its_problem_in_the_language_of_the_reader() -> None:
    error = BaseFailed("shelf", Fault("chunks_missing", {"kind": "vector", "missing": "3"}))
    assert str(error) == (
        "Base 'shelf' has failed: 3 chunks are missing in vector, so search does not find them there. Retry to build "
        "only these. Repair or delete the base. Nothing was changed."
    )
    cause = CHINESE("problem.chunks_missing", kind=CHINESE("index.vector"), missing=3)
    assert shown(error) == CHINESE("problem.base_failed", base="shelf", cause=cause)
    assert "向量中缺少 3 个分块" in shown(error)
    assert error.params == {"base": "shelf", "cause": "chunks_missing", "kind": "vector", "missing": "3"}


def test_a_problem_that_was_stored_with_a_message_keeps_it() -> None:
    stored = Fault("no_source", {"message": "Nothing says where {it} comes from."})
    error = BaseFailed("shelf", stored)
    assert "has failed: Nothing says where {it} comes from. Repair" in str(error)
    assert CHINESE("problem.no_source") in shown(error)


def test_a_problem_of_a_plug_in_keeps_its_message_in_every_language() -> None:
    error = BaseFailed("shelf", Permanent("plot_missing", "The plot has no soil."))
    assert (
        str(error) == "Base 'shelf' has failed: The plot has no soil. Repair or delete the base. Nothing was changed."
    )
    assert shown(error) == CHINESE("problem.base_failed", base="shelf", cause="The plot has no soil.")


def test_a_problem_without_a_text_and_a_message_is_named_by_its_code() -> None:
    assert "has failed: plot_missing Repair" in str(BaseFailed("shelf", Fault("plot_missing")))


def test_a_base_that_is_being_restored_has_a_message_without_the_advice_to_repair_it() -> None:
    error = BaseFailed("shelf", Fault(RESTORING, {"base": "an older name", "holder": "host/1"}))
    assert (error.code, error.subcode, error.params) == ("base_failed", RESTORING, {"base": "shelf"})
    assert str(error).startswith("Base 'shelf' is being restored from an archive")
    assert "epair" not in str(error)
    assert shown(error).startswith("知识库「shelf」正在从归档恢复")


def test_the_base_of_an_error_replaces_a_parameter_of_its_cause() -> None:
    error = BaseFailed("shelf", Fault("daily_quota", {"base": "another"}))
    assert "another" not in str(error)


def test_every_reason_in_the_source_has_a_text() -> None:
    """Reasons that the source computes are not checked here."""
    calls = (node for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.Call))
    reasons = {
        str(one.value.value)
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id in error_classes()
        for one in call.keywords
        if one.arg == "why" and isinstance(one.value, ast.Constant)
    }
    assert len(reasons) > 15
    assert [reason for reason in reasons if f"why.{reason}" not in load_catalogue()] == []
