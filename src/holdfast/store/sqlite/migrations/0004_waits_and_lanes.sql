-- Version 4: what a job waits for, what it shares with others, the core's own words; and since when a key stands.

ALTER TABLE holdfast_job ADD COLUMN waits TEXT;
-- The lane's name; and its numbers, as JSON: [running, interval, burst, weight].
ALTER TABLE holdfast_job ADD COLUMN lane TEXT;
ALTER TABLE holdfast_job ADD COLUMN bounds TEXT;
ALTER TABLE holdfast_job ADD COLUMN extra BLOB;

-- What waits for something, newest last.
CREATE INDEX holdfast_waits ON holdfast_job (waits) WHERE waits IS NOT NULL;
-- What lanes hold, in the order in which it is let go.
CREATE INDEX holdfast_held ON holdfast_job (waits, priority, run_at, seq) WHERE waits IS NOT NULL AND lane IS NOT NULL;
-- What runs of a lane; with the state, so that counting reads no job.
CREATE INDEX holdfast_lane ON holdfast_job (lane, state) WHERE lane IS NOT NULL AND state = 'running';
-- What waits, but not for its time alone.
CREATE INDEX holdfast_blocked ON holdfast_job (queue) WHERE state = 'blocked';

-- What is remembered of a lane (holdfast.core.limiter.Gate). One of which nothing is to be remembered has no row.
CREATE TABLE holdfast_gate (
    lane TEXT NOT NULL PRIMARY KEY,
    tat INTEGER NOT NULL DEFAULT 0,
    rest_until INTEGER NOT NULL DEFAULT 0,
    finish INTEGER NOT NULL DEFAULT 0,
    opens_at INTEGER            -- NULL: not by the clock
) WITHOUT ROWID;
CREATE INDEX holdfast_opening ON holdfast_gate (opens_at, lane) WHERE opens_at IS NOT NULL;
CREATE INDEX holdfast_idle ON holdfast_gate (max(tat, rest_until, finish));

ALTER TABLE holdfast_key ADD COLUMN made_at INTEGER NOT NULL DEFAULT 0;
UPDATE holdfast_key SET made_at = coalesce(
    (SELECT created_at FROM holdfast_job WHERE holdfast_job.id = holdfast_key.id), 0);
