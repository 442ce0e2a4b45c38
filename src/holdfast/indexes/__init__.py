"""Indexes over the chunks of documents: each index is a kind of slot, builds rows and searches them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
