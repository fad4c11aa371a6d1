-- Chunks, tasks and runs by their whole keys: how functions find the rows that they are asked about, and nothing else. A
-- list of keys stands in FROM, and each of its keys is looked up. `at` is where the row lies, for an UPDATE:
--
--     SELECT … FROM unnest(p_ids) AS i, chunk_of(p_dataset, i) AS c WHERE …
--     UPDATE chunk c SET … FROM unnest(p_ids) AS i, chunk_of(p_dataset, i) AS was WHERE c.ctid = was.at AND was.status = …
--
-- OFFSET 0, and conditions on `was` only, leave the planner no other way. Where the keys, or a condition on a state, are
-- compared with the table itself (data_id = ANY (…), or a join), it may as well take all rows of a data set, or all of an
-- index, and compare each with the list. It does so where the statistics say that there are none: those of tables that
-- were analyzed before a big apply was committed. An UPDATE by ctid passes by a row that somebody else has changed since the
-- statement began: the rows are locked by a statement before it (30_locks.sql).

CREATE VIEW opendataflow.chunk_row AS SELECT c.ctid AS at, c.* FROM opendataflow.chunk c;
CREATE VIEW opendataflow.task_row AS SELECT w.ctid AS at, w.* FROM opendataflow.task w;
-- Without what only people ask for: it would cost each look-up more than the look-up itself.
CREATE VIEW opendataflow.run_row AS
    SELECT r.ctid AS at, r.id, r.job, r.data_id, r.state, r.attempt, r.fence, r.lease, r.reads, r.read_fences, r.writes,
           r.forced, r.cancel_requested, r.finished_at, r.message, r.metrics
    FROM opendataflow.run r;

CREATE FUNCTION opendataflow.chunk_of(p_dataset text, p_id text) RETURNS SETOF opendataflow.chunk_row
LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT * FROM opendataflow.chunk_row c WHERE c.dataset = p_dataset AND c.data_id = p_id OFFSET 0
$$;

CREATE FUNCTION opendataflow.task_of(p_job text, p_id text) RETURNS SETOF opendataflow.task_row
LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT * FROM opendataflow.task_row w WHERE w.job = p_job AND w.data_id = p_id OFFSET 0
$$;

CREATE FUNCTION opendataflow.run_of(p_id bigint) RETURNS SETOF opendataflow.run_row
LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT * FROM opendataflow.run_row r WHERE r.id = p_id OFFSET 0
$$;

CREATE FUNCTION opendataflow.runs(p_ids bigint[]) RETURNS SETOF opendataflow.run_row
LANGUAGE sql STABLE AS $$
    SELECT r.* FROM unnest(p_ids) AS i, opendataflow.run_of(i) AS r
$$;
