"""The rules of the store protocol as pure functions on Python values, and the in-memory store."""
