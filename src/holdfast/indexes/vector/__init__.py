"""The index `vector`: finds chunks by their meaning."""
