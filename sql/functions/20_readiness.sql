-- Readiness, defined once for the whole program: the blockers of a task.
-- `why` shows the blockers and `task.blockers` counts them. claim() checks them again under the chunks' locks.
-- verify() recomputes them.

-- Return whether an output chunk blocks a task whose last run is p_last_run (rules 2 and 3).
-- A chunk that FAILED in the task's own last run does not block: an open task has retries left.
-- Only a run that writes the chunk, or a HOLD set after the force, blocks a forced task.
CREATE FUNCTION opendataflow.blocks_output(p_forced boolean, p_status text, p_readers integer, p_chunk_run bigint,
                                           p_last_run bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT p_status IN ('RUNNING', 'HOLD')
        OR (NOT p_forced AND (p_readers > 0 OR p_status IN ('READY', 'PENDING')
                              OR (p_status = 'FAILED' AND (p_chunk_run = p_last_run) IS NOT TRUE)))
$$;

-- The inputs (IN) and outputs (OUT) of each job.
CREATE VIEW opendataflow.job_dataset AS
    SELECT job, dataset, 'IN' AS itemtype FROM opendataflow.job_input
    UNION ALL
    SELECT job, dataset, 'OUT' FROM opendataflow.job_output;

-- The data sets whose ids create tasks for a job: its inputs, or its outputs if it has no input.
CREATE VIEW opendataflow.job_source AS
    SELECT job, dataset FROM opendataflow.job_input
    UNION ALL
    SELECT o.job, o.dataset FROM opendataflow.job_output o
    WHERE NOT EXISTS (SELECT FROM opendataflow.job_input i WHERE i.job = o.job);

-- Return the jobs whose source is a data set, without deleted ones.
-- A join with the view job_source would read all jobs: the planner can't look up its second part by a key of another table.
CREATE FUNCTION opendataflow.jobs_with_source(p_dataset text) RETURNS SETOF opendataflow.job
LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT j.* FROM opendataflow.job_source s
    CROSS JOIN LATERAL (SELECT * FROM opendataflow.job j WHERE j.id = s.job AND NOT j.deleted OFFSET 0) j
    WHERE s.dataset = p_dataset OFFSET 0
$$;

-- Return the data sets of a job.
CREATE FUNCTION opendataflow.datasets_of(p_job text) RETURNS SETOF text
LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT l.dataset FROM opendataflow.job_dataset l WHERE l.job = p_job OFFSET 0
$$;

-- Return whether a job still has a task for an id: the id is in its range and in one of its source data sets.
-- Retired chunks do not count.
-- Always true for a deleted job, whose tasks stay unchanged.
CREATE FUNCTION opendataflow.in_scope(p_job text, p_id text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM opendataflow.job j WHERE j.id = p_job AND j.deleted)
        OR EXISTS (SELECT FROM opendataflow.job j
                   JOIN opendataflow.job_source s ON s.job = j.id
                   CROSS JOIN opendataflow.chunk_of(s.dataset, p_id) c
                   WHERE j.id = p_job AND c.retired_from IS NULL AND opendataflow.in_range(p_id, j.chunk_from, j.chunk_to))
$$;

-- The blockers of each task, one row each (rules 1 to 3). Inputs do not block a forced task.
CREATE VIEW opendataflow.blocker AS
    SELECT t.job, t.data_id, t.state, i.dataset, 'IN' AS itemtype, coalesce(c.status, 'DECLARED') AS status,
           coalesce(c.readers, 0) AS readers, c.run, c.reason
    FROM opendataflow.task t
    JOIN opendataflow.job_input i ON i.job = t.job
    LEFT JOIN opendataflow.chunk_of(i.dataset, t.data_id) AS c ON true
    WHERE NOT t.forced AND c.status IS DISTINCT FROM 'READY'
    UNION ALL
    SELECT t.job, t.data_id, t.state, o.dataset, 'OUT', c.status, c.readers, c.run, c.reason
    FROM opendataflow.task t
    JOIN opendataflow.job_output o ON o.job = t.job
    CROSS JOIN opendataflow.chunk_of(o.dataset, t.data_id) AS c
    WHERE opendataflow.blocks_output(t.forced, c.status, c.readers, c.run, t.run);

-- Return the outputs of a task that were never made. A chunk is made if it is READY or PENDING, also under a HOLD.
CREATE FUNCTION opendataflow.missing_outputs(p_job text, p_id text) RETURNS SETOF text
LANGUAGE sql STABLE AS $$
    SELECT o.dataset FROM opendataflow.job_output o
    LEFT JOIN opendataflow.chunk_of(o.dataset, p_id) c ON true
    WHERE o.job = p_job AND (coalesce(c.held_status, c.status) IN ('READY', 'PENDING')) IS NOT TRUE
    ORDER BY 1
$$;

-- Return the events of one chunk or task.
-- OFFSET 0 keeps the planner from scanning the whole history backwards to find the newest event.
CREATE FUNCTION opendataflow.history_of(p_kind text, p_owner text, p_data_id text) RETURNS SETOF opendataflow.history
LANGUAGE sql STABLE AS $$
    SELECT * FROM opendataflow.history h WHERE h.kind = p_kind AND h.owner = p_owner AND h.data_id = p_data_id OFFSET 0
$$;

-- Return the runs of one task, oldest first. ORDER BY r.id selects the index (job, data_id, id).
CREATE FUNCTION opendataflow.runs_of(p_job text, p_data_id text) RETURNS SETOF opendataflow.run
LANGUAGE sql STABLE AS $$
    SELECT * FROM opendataflow.run r WHERE r.job = p_job AND r.data_id = p_data_id ORDER BY r.id OFFSET 0
$$;

-- Return the tasks whose readiness depends on the given chunks. The jobs of each data set are looked up once.
CREATE FUNCTION opendataflow.affected_tasks(p_datasets text[], p_ids text[]) RETURNS TABLE (job text, data_id text)
LANGUAGE sql STABLE ROWS 100 AS $$
    SELECT DISTINCT l.job, i
    FROM (SELECT p.dataset, array_agg(p.data_id) AS ids FROM unnest(p_datasets, p_ids) AS p(dataset, data_id) GROUP BY 1) AS g
    JOIN opendataflow.job_dataset l ON l.dataset = g.dataset
    CROSS JOIN unnest(g.ids) AS i
$$;

-- Recount the blockers of the given tasks and move the tasks between WAITING and QUEUED.
-- Return the jobs that have newly QUEUED tasks.
-- The caller holds the row locks of the tasks, which order this transaction and changes of chunks by others.
CREATE FUNCTION opendataflow.recount_blockers(p_jobs text[], p_ids text[]) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    v_jobs     text[];
    v_ids      text[];
    v_before   integer[];
    v_blockers integer[];
    v_queued   text[];
BEGIN
    SELECT array_agg(p.job), array_agg(p.data_id), array_agg(t.blockers) INTO v_jobs, v_ids, v_before
    FROM (SELECT DISTINCT * FROM unnest(p_jobs, p_ids)) AS p(job, data_id)
    CROSS JOIN task_of(p.job, p.data_id) AS t
    WHERE t.state IN ('WAITING', 'QUEUED', 'RETRYING');
    IF v_jobs IS NULL THEN
        RETURN '{}';
    END IF;
    SELECT array_agg(n.job), array_agg(n.data_id), array_agg(n.blockers) INTO v_jobs, v_ids, v_blockers
    FROM (SELECT p.*, (SELECT count(*)::integer FROM blocker b WHERE b.job = p.job AND b.data_id = p.data_id) AS blockers
          FROM unnest(v_jobs, v_ids, v_before) AS p(job, data_id, before)
          OFFSET 0) n  -- OFFSET 0: count the blockers only once per task
    WHERE n.blockers <> n.before;
    IF v_jobs IS NULL THEN
        RETURN '{}';
    END IF;
    WITH moved AS (
        UPDATE task t
        SET blockers = n.blockers,
            state = CASE WHEN t.state = 'RETRYING' THEN 'RETRYING' WHEN n.blockers = 0 THEN 'QUEUED' ELSE 'WAITING' END
        FROM unnest(v_jobs, v_ids, v_blockers) AS n(job, data_id, blockers), task_of(n.job, n.data_id) AS was
        WHERE t.ctid = was.at
        RETURNING t.job, t.state
    )
    SELECT coalesce(array_agg(DISTINCT job), '{}') INTO v_queued FROM moved WHERE state = 'QUEUED';
    RETURN v_queued;
END $$;
