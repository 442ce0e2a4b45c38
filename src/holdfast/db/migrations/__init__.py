"""Changes of the schema, one file a change."""
