"""The fault lab: histories of runs under faults, simulated and real, and the check that every promise was kept."""
