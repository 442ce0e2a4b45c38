"""One reader for each family of files; `base` is the contract, `dispatch` chooses the reader."""
