"""Adds, removes, indexes and lists documents, and syncs them with their sources."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
