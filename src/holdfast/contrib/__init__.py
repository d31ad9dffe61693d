"""Integrations with web frameworks; each needs its framework's extra."""
