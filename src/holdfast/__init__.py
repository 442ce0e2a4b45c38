"""Holdfast indexes every document once, keeps what it indexed, and never lets old work overwrite new.

`from holdfast import Holdfast` is the front door of the library; nothing of it is loaded before it is asked for.
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

logging.getLogger(__name__).addHandler(logging.NullHandler())  # whoever uses a library decides where it speaks


if not TYPE_CHECKING:  # a type checker sees the imports above, and nothing else

    def __getattr__(name: str) -> Any:
        """Import a public name, and what it needs, when it is used for the first time."""
        if name not in _DOORS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from holdfast.extras import importing_extra  # noqa: PLC0415

        with importing_extra("documents"):
            return getattr(import_module(_DOORS[name]), name)
