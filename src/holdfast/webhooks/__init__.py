"""Webhooks: endpoints, deliveries, retries, signatures."""
