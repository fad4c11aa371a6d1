-- Readiness, once for the whole program: what keeps a task from being claimed. `why` shows these rows,
-- `task.blockers` counts them, claim checks them again under the chunks' locks, verify recomputes them.

-- Rules 2 and 3: whether an output chunk keeps a task from running whose last run is p_last_run. FAILED by the job's own
-- run does not: as long as the task is open, it has retries left. A forced task waits only for a run that writes the chunk
-- already, and for a HOLD that came after the force.
CREATE FUNCTION opendataflow.blocks_output(p_forced boolean, p_status text, p_readers integer, p_chunk_run bigint,
                                           p_last_run bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT p_status IN ('RUNNING', 'HOLD')
        OR (NOT p_forced AND (p_readers > 0 OR p_status IN ('READY', 'PENDING')
                              OR (p_status = 'FAILED' AND (p_chunk_run = p_last_run) IS NOT TRUE)))
$$;

-- The data sets of each job with their part in it.
CREATE VIEW opendataflow.job_dataset AS
    SELECT job, dataset, 'IN' AS itemtype FROM opendataflow.job_input
    UNION ALL
    SELECT job, dataset, 'OUT' FROM opendataflow.job_output;

-- The data sets whose ids make tasks for a job: its inputs, or its outputs where it has no input.
CREATE VIEW opendataflow.job_source AS
    SELECT job, dataset FROM opendataflow.job_input
    UNION ALL
    SELECT o.job, o.dataset FROM opendataflow.job_output o
    WHERE NOT EXISTS (SELECT FROM opendataflow.job_input i WHERE i.job = o.job);

-- Whether a job still has a task for an id: its range has it, and one of the data sets that make its tasks. The tasks of a
-- deleted job is frozen as it is.
CREATE FUNCTION opendataflow.in_scope(p_job text, p_id text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM opendataflow.job j WHERE j.id = p_job AND j.deleted)
        OR EXISTS (SELECT FROM opendataflow.job j
                   JOIN opendataflow.job_source s ON s.job = j.id
                   CROSS JOIN opendataflow.chunk_of(s.dataset, p_id)
                   WHERE j.id = p_job AND opendataflow.in_range(p_id, j.chunk_from, j.chunk_to))
$$;

-- One row for each thing that keeps a task from being claimed (rules 1 to 3); inputs don't where it is forced.
CREATE VIEW opendataflow.blocker AS
    SELECT w.job, w.data_id, w.state, i.dataset, 'IN' AS itemtype, coalesce(c.status, 'DECLARED') AS status,
           coalesce(c.readers, 0) AS readers, c.run, c.reason
    FROM opendataflow.task w
    JOIN opendataflow.job_input i ON i.job = w.job
    LEFT JOIN opendataflow.chunk_of(i.dataset, w.data_id) AS c ON true
    WHERE NOT w.forced AND c.status IS DISTINCT FROM 'READY'
    UNION ALL
    SELECT w.job, w.data_id, w.state, o.dataset, 'OUT', c.status, c.readers, c.run, c.reason
    FROM opendataflow.task w
    JOIN opendataflow.job_output o ON o.job = w.job
    CROSS JOIN opendataflow.chunk_of(o.dataset, w.data_id) AS c
    WHERE opendataflow.blocks_output(w.forced, c.status, c.readers, c.run, w.run);

-- The events of one chunk or task, and the runs of one task. OFFSET 0: who asks for the newest must not make the planner
-- walk through everything from the newest on, looking for them. ORDER BY r.id: only the index of both columns has that order.
CREATE FUNCTION opendataflow.history_of(p_kind text, p_owner text, p_data_id text) RETURNS SETOF opendataflow.history
LANGUAGE sql STABLE AS $$
    SELECT * FROM opendataflow.history h WHERE h.kind = p_kind AND h.owner = p_owner AND h.data_id = p_data_id OFFSET 0
$$;

CREATE FUNCTION opendataflow.runs_of(p_job text, p_data_id text) RETURNS SETOF opendataflow.run
LANGUAGE sql STABLE AS $$
    SELECT * FROM opendataflow.run r WHERE r.job = p_job AND r.data_id = p_data_id ORDER BY r.id OFFSET 0
$$;

-- The tasks whose readiness depends on the given chunks. The jobs of each data set are looked up once.
CREATE FUNCTION opendataflow.affected_tasks(p_datasets text[], p_ids text[]) RETURNS TABLE (job text, data_id text)
LANGUAGE sql STABLE ROWS 100 AS $$
    SELECT DISTINCT l.job, i
    FROM (SELECT p.dataset, array_agg(p.data_id) AS ids FROM unnest(p_datasets, p_ids) AS p(dataset, data_id) GROUP BY 1) AS g
    JOIN opendataflow.job_dataset l ON l.dataset = g.dataset
    CROSS JOIN unnest(g.ids) AS i
$$;

-- Counts the blockers of the given tasks anew and moves them between WAITING and QUEUED. The caller holds the
-- tasks' row locks: whoever changes a chunk comes after this transaction for them, or before it. Returns the jobs
-- that have QUEUED tasks now.
CREATE FUNCTION opendataflow.recount_blockers(p_jobs text[], p_ids text[]) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    v_jobs     text[];
    v_ids      text[];
    v_before   integer[];
    v_blockers integer[];
    v_woken    text[];
BEGIN
    SELECT array_agg(p.job), array_agg(p.data_id), array_agg(w.blockers) INTO v_jobs, v_ids, v_before
    FROM (SELECT DISTINCT * FROM unnest(p_jobs, p_ids)) AS p(job, data_id)
    CROSS JOIN task_of(p.job, p.data_id) AS w
    WHERE w.state IN ('WAITING', 'QUEUED', 'RETRYING');
    IF v_jobs IS NULL THEN
        RETURN '{}';
    END IF;
    SELECT array_agg(n.job), array_agg(n.data_id), array_agg(n.blockers) INTO v_jobs, v_ids, v_blockers
    FROM (SELECT p.*, (SELECT count(*)::integer FROM blocker b WHERE b.job = p.job AND b.data_id = p.data_id) AS blockers
          FROM unnest(v_jobs, v_ids, v_before) AS p(job, data_id, before)
          OFFSET 0) n  -- or the blockers would be counted once for each time that they are mentioned
    WHERE n.blockers <> n.before;
    IF v_jobs IS NULL THEN
        RETURN '{}';
    END IF;
    WITH moved AS (
        UPDATE task w
        SET blockers = n.blockers,
            state = CASE WHEN w.state = 'RETRYING' THEN 'RETRYING' WHEN n.blockers = 0 THEN 'QUEUED' ELSE 'WAITING' END
        FROM unnest(v_jobs, v_ids, v_blockers) AS n(job, data_id, blockers), task_of(n.job, n.data_id) AS was
        WHERE w.ctid = was.at
        RETURNING w.job, w.state
    )
    SELECT coalesce(array_agg(DISTINCT job), '{}') INTO v_woken FROM moved WHERE state = 'QUEUED';
    RETURN v_woken;
END $$;
