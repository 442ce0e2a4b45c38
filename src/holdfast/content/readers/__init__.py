"""One reader for each family of files; `base` is the contract, `choosing` picks one."""
