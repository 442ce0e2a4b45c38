"""One module per page: its parameters and its first rendering."""
