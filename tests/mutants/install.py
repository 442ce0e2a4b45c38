"""Replaces a module by a mutant before any code imports the module.

Importing this module installs the mutant that the environment names. `every_process` imports it in each process.
"""

from __future__ import annotations

import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from typing import TYPE_CHECKING, Any

from tests.mutants.generate import Mutant

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, ModuleType

VARIABLE = "MUTANT"


class _Loader(SourceFileLoader):
    mutant: Mutant

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002
        return compile(self.mutant.tree, self.path, "exec")


class _Finder(MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._mutant.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        assert spec.origin is not None
        loader: Any = _Loader(fullname, spec.origin)
        loader.mutant = self._mutant
        spec.loader = loader
        return spec


def infect(mutant: Mutant) -> None:
    """Make every later import of the module load the mutant."""
    assert mutant.module not in sys.modules, "too late: the module is already imported"
    sys.meta_path.insert(0, _Finder(mutant))


if VARIABLE in os.environ:
    module, _, number = os.environ[VARIABLE].partition(":")
    infect(Mutant(module, int(number)))
