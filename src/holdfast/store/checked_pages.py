"""How many jobs are checked for a page that no index gives: few at first, then ten times as many, up to a limit."""

FIRST_CHECKED = 1000
"""Jobs that are checked at first for one page."""
MAX_CHECKED = 50_000
"""Jobs that are checked for one page, at most, so that a search can be stopped soon."""


def next_span(checked: int) -> int:
    """How many jobs to check next; 0 if the page ends here."""
    return min(9 * checked, MAX_CHECKED - checked) if checked else FIRST_CHECKED
