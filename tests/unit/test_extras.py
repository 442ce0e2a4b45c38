"""An error about a missing package names the extra that installs it, as declared in pyproject.toml."""

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
    """Return the modules of the packages that an extra lists."""
    named = {re.split(r"[^\w.-]", one)[0].lower() for one in EXTRAS[extra]} - {"holdfast"}
    return {module for module, owners in packages_distributions().items() if named & {one.lower() for one in owners}}


@pytest.mark.parametrize("extra", PROMISED)
def test_every_package_of_an_extra_is_in_the_table(extra: str) -> None:
    known = {module for module, of in EXTRA_BY_MODULE.items() if of == extra}
    assert {module for module in own(extra) if not module.startswith("_")} - {"multipart"} <= known


@pytest.mark.parametrize("extra", PROMISED)
def test_the_extras_that_an_extra_includes_are_in_the_table(extra: str) -> None:
    (included,) = [one for one in EXTRAS[extra] if one.startswith("holdfast[")] or ["holdfast[]"]
    assert INCLUDED_EXTRAS.get(extra, frozenset()) == set(filter(None, included[9:-1].split(",")))


def test_the_error_about_a_missing_package_names_its_extra() -> None:
    with (
        pytest.raises(MissingExtra, match=r"'numpy'.*pip install 'holdfast\[documents\]'") as raised,
        importing_extra("client"),
    ):
        raise ModuleNotFoundError(name="numpy")
    assert isinstance(raised.value, BadSettings)
    assert (raised.value.package, raised.value.extra) == ("numpy", "documents")


def test_the_error_names_the_requested_extra_if_that_includes_the_package() -> None:
    with pytest.raises(MissingExtra, match=r"pip install 'holdfast\[server\]'"), importing_extra("server"):
        raise ModuleNotFoundError(name="numpy.typing")


def test_an_import_error_of_a_module_without_an_extra_is_not_changed() -> None:
    assert find_missing_extra(ModuleNotFoundError(name="holdfast.nowhere")) is None
    with pytest.raises(ModuleNotFoundError), importing_extra("server"):
        raise ModuleNotFoundError(name="nowhere")
