"""What happens, for whoever is to know of it: the log, the live stream, and webhooks."""
