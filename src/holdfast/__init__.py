"""Holdfast indexes every document once, keeps what it indexed, and never lets old work overwrite new.

Programs use the library through `from holdfast import Holdfast`. The package imports its parts at their first use.

Example:
    with Holdfast("library") as library:
        library.bases.create("handbook")
        library.documents.note("handbook", "anchors", "An anchor holds a ship.")
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.service.client import Holdfast as Holdfast
    from holdfast.service.documents import File as File

__version__ = "0.1.0"

_DOORS = {"Holdfast": "holdfast.service.client", "File": "holdfast.service.documents"}

logging.getLogger(__name__).addHandler(logging.NullHandler())  # the application configures logging


if not TYPE_CHECKING:  # a type checker sees only the imports above

    def __getattr__(name: str) -> Any:
        """Import a public name and its dependencies at the first use."""
        if name not in _DOORS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from holdfast.extras import importing_extra  # noqa: PLC0415

        with importing_extra("documents"):
            return getattr(import_module(_DOORS[name]), name)
