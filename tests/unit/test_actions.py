"""The operations on a document are declared once; every list of them is derived from that, or compared here."""

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
OF_THE_PAGE = {"view", "download", "rescan"}  # it opens, downloads, and refreshes containers under another name
LIBRARY_ONLY = {Action.FORCE}


def test_the_page_has_a_button_for_every_action_but_force() -> None:
    text = PAGE.read_text()
    (kinds,) = re.findall(r"@typedef \{(.+)\} Action", text)
    (icons,) = re.findall(r"const ICONS = \{(.+)\};", text)
    wanted = OF_THE_PAGE | {str(one) for one in Action} - LIBRARY_ONLY
    assert set(re.findall(r'"(\w+)"', kinds)) == wanted
    assert set(re.findall(r"(\w+):", icons)) == wanted


def test_the_api_takes_its_choices_from_the_same_list() -> None:
    assert get_args(ActionName) == tuple(map(str, Action))


def test_the_library_has_a_call_for_every_action_but_force() -> None:
    calls = {name for name in vars(SingleDocumentOperations) if not name.startswith("_")} - {"many"}
    assert calls == {str(one) for one in Action} - LIBRARY_ONLY


def test_every_action_is_an_operation_of_the_engine_but_the_look_at_a_source() -> None:
    assert {str(one) for one in Action} - {str(one) for one in Operation} == {str(Action.REFRESH)}
    assert set(Action) >= SUBTREE_ACTIONS
