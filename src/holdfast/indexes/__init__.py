"""Indexes over the chunks of documents, each a kind of slot: how their rows are made, kept, found and removed."""
