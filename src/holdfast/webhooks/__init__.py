"""Webhooks: signed HTTP notifications when jobs end."""
