"""Flows: jobs that depend on each other."""
