"""Integrations with web frameworks, each in a package of its own. Nothing else of Holdfast imports them."""
