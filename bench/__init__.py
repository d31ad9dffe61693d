"""Holdfast beside its peers and beside the bare store, measured in one run. See README.md."""
