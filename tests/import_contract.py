"""A contract for import-linter: other packages import only the public modules of a package.

The package itself (its `__init__`) is always public. A package that is expensive to load as a whole names further
public modules, which are loaded only where they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from importlinter import Contract, ContractCheck, fields, output

if TYPE_CHECKING:
    from grimp import ImportGraph


class PublicModules(Contract):
    """Fails if a module outside a package imports a private module of the package."""

    packages = fields.ListField(subfield=fields.StringField())
    public = fields.ListField(subfield=fields.StringField(), required=False)
    everywhere = fields.ListField(subfield=fields.StringField(), required=False)  # importers without restrictions

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002 - import-linter's signature
        """Find all imports of private modules."""
        packages = cast("list[str]", self.packages)
        public = set(cast("list[str]", self.public or []))
        everywhere = set(cast("list[str]", self.everywhere or []))
        unknown = sorted((public | everywhere | set(packages)) - graph.modules)
        found = [
            f"{importer} -> {module}"
            for package in packages
            for module in sorted(graph.find_descendants(package) - public)
            for importer in sorted(graph.find_modules_that_directly_import(module) - everywhere)
            if importer != package and not importer.startswith(f"{package}.")
        ]
        return ContractCheck(kept=not found and not unknown, metadata={"found": found, "unknown": unknown})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print the imports and how to fix them."""
        metadata: dict[str, Any] = check.metadata
        for name in metadata["unknown"]:
            output.print_error(f"{name} is listed in pyproject.toml, and there is no such module.")
        for one in metadata["found"]:
            output.print_error(one)
        if metadata["found"]:
            output.print_error("Import the name from the package, and export it there if it is meant for others.")
