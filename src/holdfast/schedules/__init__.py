"""Jobs that are made by the clock."""
