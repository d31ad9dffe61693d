-- Version 2: what jobs print, in pieces, the newest kept within a limit; it goes with its job.

CREATE TABLE holdfast_output (
    seq INTEGER NOT NULL,       -- the job's
    position INTEGER NOT NULL,  -- in bytes over all claims of the job
    fence INTEGER NOT NULL,     -- of the claim that printed it
    at INTEGER NOT NULL,        -- in bytes since that claim began to print
    data BLOB NOT NULL,
    PRIMARY KEY (seq, position)
);
CREATE TRIGGER holdfast_output_gone AFTER DELETE ON holdfast_job
BEGIN
    DELETE FROM holdfast_output WHERE seq = old.seq;
END;
