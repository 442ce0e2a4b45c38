"""Which extra a missing package belongs to, compared with what the extras install."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import packages_distributions

import pytest

from holdfast.errors import BadSettings, MissingExtra
from holdfast.extras import EXTRA_BY_MODULE, INCLUDED_EXTRAS, find_missing_extra, importing_extra
from tests.support.processes import ROOT

EXTRAS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
PROMISED = [extra for extra in EXTRAS if extra not in {"bench", "dev"}]


def own(extra: str) -> set[str]:
    """Return the modules of the packages that an extra names."""
    named = {re.split(r"[^\w.-]", one)[0].lower() for one in EXTRAS[extra]} - {"holdfast"}
    return {module for module, owners in packages_distributions().items() if named & {one.lower() for one in owners}}


@pytest.mark.parametrize("extra", PROMISED)
def test_every_package_of_an_extra_is_known(extra: str) -> None:
    known = {module for module, of in EXTRA_BY_MODULE.items() if of == extra}
    assert {module for module in own(extra) if not module.startswith("_")} - {"multipart"} <= known


@pytest.mark.parametrize("extra", PROMISED)
def test_what_an_extra_includes_is_known(extra: str) -> None:
    (included,) = [one for one in EXTRAS[extra] if one.startswith("holdfast[")] or ["holdfast[]"]
    assert INCLUDED_EXTRAS.get(extra, frozenset()) == set(filter(None, included[9:-1].split(",")))


def test_a_missing_package_is_named_with_its_extra() -> None:
    with (
        pytest.raises(MissingExtra, match=r"'numpy'.*pip install 'holdfast\[documents\]'") as raised,
        importing_extra("client"),
    ):
        raise ModuleNotFoundError(name="numpy")
    assert isinstance(raised.value, BadSettings)
    assert (raised.value.package, raised.value.extra) == ("numpy", "documents")


def test_an_extra_that_includes_the_package_is_named_instead() -> None:
    with pytest.raises(MissingExtra, match=r"pip install 'holdfast\[server\]'"), importing_extra("server"):
        raise ModuleNotFoundError(name="numpy.typing")


def test_what_belongs_to_no_extra_is_left_alone() -> None:
    assert find_missing_extra(ModuleNotFoundError(name="holdfast.nowhere")) is None
    with pytest.raises(ModuleNotFoundError), importing_extra("server"):
        raise ModuleNotFoundError(name="nowhere")
