"""Schedulers: they start workers or deliver rings to them. Entry point `holdfast.schedulers`."""
