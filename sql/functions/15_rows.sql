-- Look-ups of chunks, tasks and runs by their whole keys.
-- Functions put a list of keys in FROM and look up each key. `at` is the ctid of the row, for an UPDATE:
--
--     SELECT … FROM unnest(p_ids) AS i, chunk_of(p_dataset, i) AS c WHERE …
--     UPDATE chunk c SET … FROM unnest(p_ids) AS i, chunk_of(p_dataset, i) AS was WHERE c.ctid = was.at AND was.status = …
--
-- OFFSET 0 and conditions on `was` alone force the planner to use the key.
-- A comparison with the table itself (data_id = ANY (…), or a join) allows scans of a whole data set or a whole index.
-- The planner chooses such scans if statistics say that the table is empty, as before a big apply is committed.
-- An UPDATE by ctid skips a row that another transaction changed after the statement began.
-- An earlier statement must therefore lock the rows (30_locks.sql).

CREATE VIEW opendataflow.chunk_row AS SELECT c.ctid AS at, c.* FROM opendataflow.chunk c;
CREATE VIEW opendataflow.task_row AS SELECT t.ctid AS at, t.* FROM opendataflow.task t;
-- Omit the columns that only reports need: they would cost more than the look-up itself.
CREATE VIEW opendataflow.run_row AS
    SELECT r.ctid AS at, r.id, r.job, r.data_id, r.state, r.attempt, r.fence, r.lease, r.reads, r.read_fences, r.writes,
           r.forced, r.cancel_requested, r.finished_at, r.message, r.metrics
    FROM opendataflow.run r;

-- Return the chunk of one data set and data id.
CREATE FUNCTION opendataflow.chunk_of(p_dataset text, p_id text) RETURNS SETOF opendataflow.chunk_row
LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT * FROM opendataflow.chunk_row c WHERE c.dataset = p_dataset AND c.data_id = p_id OFFSET 0
$$;

-- Return the task of one job and data id.
CREATE FUNCTION opendataflow.task_of(p_job text, p_id text) RETURNS SETOF opendataflow.task_row
LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT * FROM opendataflow.task_row w WHERE w.job = p_job AND w.data_id = p_id OFFSET 0
$$;

-- Return one run by id.
CREATE FUNCTION opendataflow.run_of(p_id bigint) RETURNS SETOF opendataflow.run_row
LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT * FROM opendataflow.run_row r WHERE r.id = p_id OFFSET 0
$$;

-- Return several runs by id.
CREATE FUNCTION opendataflow.runs(p_ids bigint[]) RETURNS SETOF opendataflow.run_row
LANGUAGE sql STABLE AS $$
    SELECT r.* FROM unnest(p_ids) AS i, opendataflow.run_of(i) AS r
$$;
