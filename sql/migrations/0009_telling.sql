-- The last failures of a job and how much of its task is stale, without a look at all of its runs and tasks.

CREATE INDEX run_failed ON opendataflow.run (job, finished_at) WHERE state IN ('FAILED', 'LOST');
CREATE INDEX task_stale ON opendataflow.task (job) WHERE stale;
