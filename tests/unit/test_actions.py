"""Page, API, library and engine offer the document operations that `Action` declares."""

from __future__ import annotations

from typing import get_args

from holdfast.api.documents import ActionName
from holdfast.documents.operations import SUBTREE_ACTIONS
from holdfast.documents.requests import BUTTONS, Action
from holdfast.engine.states import Operation
from holdfast.messages import load_catalogue
from holdfast.service.documents import SingleDocumentOperations

CALLS = {"many", "run"}  # of the library, for any action


def test_every_action_with_a_button_has_a_label_and_force_has_none() -> None:
    labels = {key.removeprefix("action.") for key in load_catalogue() if key.startswith("action.")}
    assert set(Action) - set(BUTTONS) == {Action.FORCE}
    assert {str(action) for action in BUTTONS} <= labels
    assert "force" not in labels


def test_the_api_accepts_exactly_the_declared_actions() -> None:
    assert get_args(ActionName) == tuple(map(str, Action))


def test_the_library_runs_every_action_and_has_short_calls_only_for_actions() -> None:
    calls = {name for name in vars(SingleDocumentOperations) if not name.startswith("_")} - CALLS
    assert calls <= {str(action) for action in BUTTONS}
    assert "run" in vars(SingleDocumentOperations)


def test_every_action_except_refresh_is_an_operation_of_the_engine() -> None:
    assert {str(one) for one in Action} - {str(one) for one in Operation} == {str(Action.REFRESH)}
    assert set(Action) >= SUBTREE_ACTIONS
