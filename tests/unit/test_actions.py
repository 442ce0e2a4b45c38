"""Page, API, library and engine offer the document operations that `Action` declares."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from holdfast.api.documents import ActionName
from holdfast.documents.operations import SUBTREE_ACTIONS
from holdfast.documents.requests import Action
from holdfast.engine.states import Operation
from holdfast.service.documents import SingleDocumentOperations

PAGE = Path(__file__).parents[2] / "src" / "holdfast" / "web" / "static" / "js" / "actions.js"
OF_THE_PAGE = {"view", "download", "rescan"}  # actions of the page only; "rescan" refreshes a container
LIBRARY_ONLY = {Action.FORCE}


def test_the_page_has_a_button_for_every_action_but_force() -> None:
    text = PAGE.read_text()
    (kinds,) = re.findall(r"@typedef \{(.+)\} Action", text)
    (icons,) = re.findall(r"const ICONS = \{(.+)\};", text)
    wanted = OF_THE_PAGE | {str(one) for one in Action} - LIBRARY_ONLY
    assert set(re.findall(r'"(\w+)"', kinds)) == wanted
    assert set(re.findall(r"(\w+):", icons)) == wanted


def test_the_api_accepts_exactly_the_declared_actions() -> None:
    assert get_args(ActionName) == tuple(map(str, Action))


def test_the_library_has_a_call_for_every_action_but_force() -> None:
    calls = {name for name in vars(SingleDocumentOperations) if not name.startswith("_")} - {"many"}
    assert calls == {str(one) for one in Action} - LIBRARY_ONLY


def test_every_action_except_refresh_is_an_operation_of_the_engine() -> None:
    assert {str(one) for one in Action} - {str(one) for one in Operation} == {str(Action.REFRESH)}
    assert set(Action) >= SUBTREE_ACTIONS
