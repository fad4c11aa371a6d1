-- The five answers are derived from what is remembered of runs; nothing has ever been stored here.

ALTER TABLE opendataflow.run DROP COLUMN answers;
