"""Stores for the bytes of documents: a folder, or a bucket of S3-compatible object storage."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
