"""Who may do what over HTTP: keys, callers, and answers kept for requests that are repeated."""
