"""Every name that a package exports can be imported, and no module is loaded before its name is used."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import holdfast

SOURCE = Path(holdfast.__file__).parent
STUBS = sorted(SOURCE.rglob("__init__.pyi"))


def package_of(stub: Path) -> str:
    return ".".join(("holdfast", *stub.parent.relative_to(SOURCE).parts))


def declared_names(stub: Path) -> list[str]:
    """Return the names in `__all__`. A name that is only imported `as` itself is a type without a value."""
    (names,) = (node.value for node in ast.parse(stub.read_text()).body if isinstance(node, ast.Assign))
    found: list[str] = ast.literal_eval(names)
    return found


@pytest.mark.parametrize("stub", STUBS, ids=package_of)
def test_every_exported_name_can_be_imported(stub: Path) -> None:
    package = import_module(package_of(stub))
    missing = [name for name in declared_names(stub) if not hasattr(package, name)]
    assert missing == []
    assert set(declared_names(stub)) <= set(package.__all__)


def test_a_package_loads_no_module_of_its_own_until_a_name_is_used() -> None:
    script = (
        "import sys, holdfast.catalog; before = 'holdfast.catalog.repository' in sys.modules;"
        "from holdfast.catalog import Catalog; print(before, 'holdfast.catalog.repository' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "True"]
