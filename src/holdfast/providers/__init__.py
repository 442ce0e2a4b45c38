"""Embeddings and language models, behind one small protocol."""
