"""Builds the documentation site (`make docs`) from the pages of the repository, the docstrings and the HTTP API."""
