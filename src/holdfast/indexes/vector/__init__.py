"""The index `vector`: chunks by their meaning."""
