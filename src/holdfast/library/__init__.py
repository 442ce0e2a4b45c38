"""Documents, their chunks, and what was paid for them: rows beside the slots, in the same database."""
