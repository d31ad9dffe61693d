"""Integrations with web frameworks; each needs its framework's extra. Nothing else of Holdfast imports them."""
