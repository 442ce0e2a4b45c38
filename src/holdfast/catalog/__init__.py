"""Storage of bases, items, recipes, chunk lists and files: SQL and value types, no operations."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
