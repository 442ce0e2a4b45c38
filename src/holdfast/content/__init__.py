"""Bytes to text with structure, and text to chunks."""
