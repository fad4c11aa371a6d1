-- The number of tasks by state, kept for every job; what a run has seen of its data sets; jobs in the history.

-- No task may change between the first count and the triggers that follow it.
LOCK TABLE opendataflow.task IN ACCESS EXCLUSIVE MODE;

-- How many tasks of a job are in each state: the sum of all its rows. Every statement that changes tasks adds a row for
-- each state that it changes (one row that all of them changed would let them wait for each other); fold_counts() adds
-- rows up now and then.
CREATE TABLE opendataflow.task_count (
    job    text NOT NULL,
    state  text NOT NULL,
    tasks  bigint NOT NULL
);
CREATE INDEX task_count_of ON opendataflow.task_count (job);

INSERT INTO opendataflow.task_count (job, state, tasks)
SELECT w.job, w.state, count(*) FROM opendataflow.task w GROUP BY w.job, w.state;

-- The data sets of a job as its runs have seen them, without passwords: where the data was expected, also when a data set
-- has been applied with another location since. `job.declaration` is the newest, null where something has changed since
-- the last claim; `run.declaration` the one that a run has seen. Rows are added, never changed.
CREATE TABLE opendataflow.declaration (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job       text NOT NULL,
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    datasets  jsonb NOT NULL
);
CREATE INDEX declaration_of ON opendataflow.declaration (job, id);

ALTER TABLE opendataflow.job ADD COLUMN declaration bigint;
ALTER TABLE opendataflow.run ADD COLUMN declaration bigint;

ALTER TABLE opendataflow.history DROP CONSTRAINT history_kind_check;
ALTER TABLE opendataflow.history ADD CONSTRAINT history_kind CHECK (kind IN ('chunk', 'task', 'job'));
COMMENT ON COLUMN opendataflow.history.owner IS 'the data set of a chunk, the job of a task, the job itself (whose data id is empty)';
