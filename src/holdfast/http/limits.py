"""Limits of the HTTP service: bytes, counts and seconds."""

from __future__ import annotations

KIB, MIB = 1024, 1024**2
"""Bytes."""

HEADERS = 64 * KIB
"""Bytes of a request's line and headers."""
HEADERS_SECONDS = 10.0
"""Seconds for a request's line and headers to arrive."""
LINGER_SECONDS = 1.0
"""Seconds for which a refused connection still reads, up to `HEADERS` bytes: a reset would discard the answer."""
BODY_MARGIN = 64 * KIB
"""Bytes that a body may have in addition to the largest payload."""
SMALL = 64 * KIB
"""Bytes up to which a body does not count against the budget (`budget.py`)."""
BATCH = 16 * MIB
"""Maximum bytes of a batch."""
BATCH_JOBS = 1000
"""Maximum jobs of a batch: the size of one commit, so that other clients do not wait longer."""
VALUES = 2_000_000
"""Approximate maximum of values in a body: decoded, a short value takes 50 times its bytes."""
DISCARDED = 16 * MIB
"""Bytes beyond a body's limit that are read and discarded, so that the client can read the refusal."""
BODY_SECONDS = 30.0
"""Seconds for a whole body to arrive."""
KEEP_ALIVE = 15.0
"""Seconds for which a connection may be idle."""
UNREAD_SECONDS = 30.0
"""Seconds after which a client that does not read its answer or stream is disconnected."""
COMPRESSED = 4 * KIB
"""Bytes from which the answer to a GET is compressed: lists of jobs and queues shrink to a tenth."""
PAGE_DEFAULT, MAX_PAGE = 50, 200
"""Jobs of a page: default and maximum."""
PAGE_BYTES = 4 * MIB
"""Maximum bytes of a page with more than one job."""
PAGE_STEP = 16
"""Jobs per read while a page is filled: each may have megabytes."""
MAX_CLAIMS = 100
"""Maximum jobs of one claim."""
MAX_CLAIM_WAIT = 60.0
"""Seconds that a claim may wait for jobs."""
STREAMS = 256
"""Maximum event streams, and maximum waiting claims; further requests get 503."""
SERVER_CONNECTIONS = 4096
"""Maximum connections of one server process, if its limit of open files allows them."""
UNAUTHENTICATED = 64
"""Unauthenticated connections of one address without a recent valid token (`connection_limits.py`)."""
FILES = 128
"""Maximum files that a server process opens besides connections."""
REFUSED_WITH_ANSWER = FILES // 2
"""Connections over the maximum that get an answer; further ones are closed without one."""
READY_SECONDS = 5.0
"""Seconds within which the store must answer a readiness check."""
RETRY_AFTER = "1"
"""Seconds after which a client may retry after 429 or 503."""
REFUSED_AGE = 5.0
"""Seconds for which the count of refused jobs is cached: dashboards ask for it every few seconds."""
LOG_EVERY = 10.0
"""Seconds between two identical log lines about one client."""
OPEN_EVERY = 1.0
"""Seconds between attempts to open a store that is unavailable at start."""
