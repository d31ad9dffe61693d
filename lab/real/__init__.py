"""Real faults on real stores: processes that are killed and stopped, servers that fall, lines that lose answers."""
