"""Deterministic simulation: the real core on loops with a virtual clock, a store behind a bad network, and one seed."""
