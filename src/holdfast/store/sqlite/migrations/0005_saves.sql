-- Version 5: checkpoints are numbered, so that one which comes late is known; and when a job was changed is kept.

ALTER TABLE holdfast_job ADD COLUMN saves INTEGER NOT NULL DEFAULT 0;
ALTER TABLE holdfast_job ADD COLUMN changed_at INTEGER;
