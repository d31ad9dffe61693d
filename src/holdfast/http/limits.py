"""What one client may ask for, in bytes, pieces and seconds."""

from __future__ import annotations

KIB, MIB = 1024, 1024**2
"""Bytes."""

HEADERS = 64 * KIB
"""Bytes of a request's line and headers."""
HEADERS_SECONDS = 10.0
"""Seconds for a request's line and headers to arrive."""
LINGER_SECONDS = 1.0
"""Seconds for which a refused connection takes in what still comes (`HEADERS` bytes at the most): a reset would take
the answer with it."""
BODY_MARGIN = 64 * KIB
"""Bytes of a body beyond the largest payload."""
SMALL = 64 * KIB
"""Bytes of a body that is not counted among those that a server holds (`budget.py`)."""
BATCH = 16 * MIB
"""Bytes of a batch."""
BATCH_JOBS = 1000
"""Jobs of a batch: what one commit takes, so that nobody else waits for longer."""
VALUES = 2_000_000
"""Values of a body, about: decoded, a short one takes fifty times the bytes that it has in the body."""
DISCARDED = 16 * MIB
"""Bytes beyond a body's limit that are still taken in, and thrown away, so that its client sees why it is refused."""
BODY_SECONDS = 30.0
"""Seconds for a whole body to arrive."""
KEEP_ALIVE = 15.0
"""Seconds for which a connection may be idle."""
UNREAD_SECONDS = 30.0
"""Seconds in which a client reads nothing of its answer, or of a stream, until it is cut off."""
PAGE_DEFAULT, PAGE_MOST = 50, 200
"""Jobs of a page: unless told otherwise, and at the most."""
PAGE_BYTES = 4 * MIB
"""Bytes of a page of more than one job."""
PAGE_STEP = 16
"""Jobs of a page that are read at once: each may carry megabytes."""
CLAIMS_MOST = 100
"""Jobs of one claim."""
CLAIM_WAIT_MOST = 60.0
"""Seconds that a claim may wait for jobs."""
STREAMS = 256
"""Streams of events, and claims that wait, each: beyond, clients are sent away with 503."""
SERVER_CONNECTIONS = 4096
"""Connections of one server process, where it may open so many files."""
STRANGERS = 64
"""Connections without a token of one address from which none came of late (`room.py`)."""
FILES = 128
"""Files that a server process opens for other things than connections, at the most."""
TOLD = FILES // 2
"""Connections beyond the most that are told so; whatever comes then is cut off at once."""
READY_SECONDS = 5.0
"""Seconds in which a store that is well answers."""
RETRY_AFTER = "1"
"""Seconds after which a client may try again what failed for now."""
LOG_EVERY = 10.0
"""Seconds between two lines of the log that say the same of one client."""
OPEN_EVERY = 1.0
"""Seconds between attempts to open a store that was down when the server started."""
