"""The metadata of every table that the code declares."""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages

import holdfast
from holdfast.db.schema import metadata

for _module in walk_packages(holdfast.__path__, "holdfast."):
    if _module.name.endswith(".tables"):  # importing the module declares its tables
        import_module(_module.name)

__all__ = ["metadata"]
