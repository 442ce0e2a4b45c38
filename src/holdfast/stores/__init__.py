"""Where the truth is kept: one schema and one set of statements for SQLite and PostgreSQL."""
