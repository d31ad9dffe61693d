"""Where jobs live: one protocol, several engines."""
