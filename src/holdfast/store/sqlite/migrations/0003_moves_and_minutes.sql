-- Version 3: what moved, while somebody watches; how claims ended, minute by minute; how many ended jobs there are.

-- One row: until when moves are kept (microseconds since 1970).
CREATE TABLE holdfast_watch (
    until INTEGER NOT NULL
);
INSERT INTO holdfast_watch (until) VALUES (0);

-- One row per commit that moved jobs. `upto` counts the moves of this row and all before it.
CREATE TABLE holdfast_move (
    upto INTEGER NOT NULL PRIMARY KEY,
    at INTEGER NOT NULL,
    moved TEXT NOT NULL         -- JSON: [[id, state], …]
);

CREATE TABLE holdfast_minute (
    at INTEGER NOT NULL,        -- its beginning
    queue TEXT NOT NULL,
    outcome TEXT NOT NULL,
    count INTEGER NOT NULL,
    waited INTEGER NOT NULL,    -- microseconds, added up
    ran INTEGER NOT NULL,
    PRIMARY KEY (at, queue, outcome)
) WITHOUT ROWID;

-- Ended jobs are counted as they come and go: there may be millions, and a look at the queues must not read them.
CREATE TABLE holdfast_ended (
    queue TEXT NOT NULL,
    state TEXT NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (queue, state)
) WITHOUT ROWID;
INSERT INTO holdfast_ended (queue, state, count)
SELECT queue, state, count(*) FROM holdfast_job WHERE state IN ('succeeded', 'dead', 'cancelled') GROUP BY queue, state;
