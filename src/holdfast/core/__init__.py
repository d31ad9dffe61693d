"""Values and rules: no I/O, no asyncio, no engine."""
