-- Version 5: checkpoints are numbered, so that one which comes late is known.

ALTER TABLE holdfast_job ADD COLUMN saves INTEGER NOT NULL DEFAULT 0;
