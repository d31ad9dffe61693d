"""Planted defects: each is put into a copy of the source, and the test or the simulation named beside it must fail."""
