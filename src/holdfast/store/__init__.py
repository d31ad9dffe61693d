"""The stores of jobs: one protocol, several engines."""
