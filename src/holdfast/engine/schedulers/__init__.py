"""Ways to bring work to workers, found by the entry point `holdfast.schedulers`."""
