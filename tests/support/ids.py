"""Names for parametrised tests that are the same in every process."""

import re


def words(value: object) -> str:
    """A value as it is written, without addresses and not too long."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))[:40]
