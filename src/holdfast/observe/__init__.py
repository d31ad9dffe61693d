"""Observability: events, logs, metrics and traces."""
