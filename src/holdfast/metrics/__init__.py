"""Metrics for Prometheus. The numbers come from the database, so every process shows those of all processes."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
