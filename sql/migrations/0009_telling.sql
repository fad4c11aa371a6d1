-- The last failures of a job and how much of its work is stale, without a look at all of its runs and works.

CREATE INDEX run_failed ON opendataflow.run (job, finished_at) WHERE state IN ('FAILED', 'LOST');
CREATE INDEX work_stale ON opendataflow.work (job) WHERE stale;
