-- Version 3: what moved, while somebody watches, and how claims ended, minute by minute.

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
