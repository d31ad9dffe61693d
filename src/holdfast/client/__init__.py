"""The parts of an open app: enqueue, claim, operate, inspect."""
