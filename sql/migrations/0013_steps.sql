-- The steps of pipelines are kept with their runs, and jobs say which pipeline they run. Nothing has been stored in `step`
-- before.
-- Works from: 11

ALTER TABLE opendataflow.job ADD pipeline text;
COMMENT ON COLUMN opendataflow.job.pipeline IS 'the slug of the pipeline that it runs; null where it runs something else';

ALTER TABLE opendataflow.step
    ADD CONSTRAINT step_from_one CHECK (ordinal > 0),
    ADD CONSTRAINT step_has_ended CHECK (status IN ('DONE', 'FAILED', 'SKIPPED')),
    ADD CONSTRAINT step_is_short CHECK (octet_length(name) <= 1024 AND octet_length(stdout) <= 65536 AND octet_length(error) <= 65536),
    ADD CONSTRAINT step_counts CHECK (rows >= 0 AND seconds >= 0);
