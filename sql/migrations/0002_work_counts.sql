-- The number of works by state, kept for every job: counting them took a second for a million.

-- No work may change between the first count and the triggers that follow it.
LOCK TABLE opendataflow.work IN ACCESS EXCLUSIVE MODE;

-- How many works of a job are in each state: the sum of all its rows. Every statement that changes works adds a row for
-- each state that it changes (one row that all of them changed would let them wait for each other); fold_counts() adds
-- rows up now and then.
CREATE TABLE opendataflow.work_count (
    job    text NOT NULL,
    state  text NOT NULL,
    works  bigint NOT NULL
);
CREATE INDEX work_count_of ON opendataflow.work_count (job);

INSERT INTO opendataflow.work_count (job, state, works)
SELECT w.job, w.state, count(*) FROM opendataflow.work w GROUP BY w.job, w.state;
