-- What the dashboard shows. These functions only read, and only they are called by the dashboard.
-- They run with the rights of their owner, so that a role of the dashboard needs no right to any table of users.

-- Return a text that changes with every change of a state: the newest event, and what is not committed yet, if anything.
-- A transaction that commits later may have an event with a lower number than the newest one.
CREATE FUNCTION opendataflow.dashboard_version() RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = opendataflow, pg_temp AS $$
    SELECT coalesce((SELECT max(h.id) FROM history h), 0)::text
           || CASE WHEN pg_snapshot_xmin(s) = pg_snapshot_xmax(s) THEN '' ELSE ':' || s::text END
    FROM pg_current_snapshot() AS s
$$;

-- Return jobs for the overview, those with failures and open breakers first: their state, and the row of job_status().
-- `failing_since`: the end of the oldest last run among the first 500 FAILED tasks.
CREATE FUNCTION opendataflow.dashboard_jobs(p_offset integer, p_limit integer)
RETURNS TABLE (job text, state text, jobs bigint, status jsonb, failing_since timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = opendataflow, pg_temp AS $$
    SELECT l.job, l.state, l.jobs, job_status(l.job), failing_since(l.job)
    FROM (SELECT j.job, j.state, count(*) OVER () AS jobs, j.failed > 0 OR j.state = 'BreakerOpen' AS is_failing FROM list_jobs() j
          WHERE j.state <> 'Deleted' ORDER BY is_failing DESC, j.job OFFSET p_offset LIMIT p_limit) l
    ORDER BY l.is_failing DESC, l.job
$$;

-- Return a job with its declaration, its state, and its status: see describe_job() and list_jobs().
CREATE FUNCTION opendataflow.dashboard_job(p_job text) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = opendataflow, pg_temp AS $$
    SELECT describe_job(l.job) || jsonb_build_object('state', l.state, 'failing_since', failing_since(l.job))
    FROM list_jobs() l WHERE l.job = p_job
$$;

-- Return the first and the last sort key of a range of ids in the order of a job; null is no limit.
CREATE FUNCTION opendataflow.key_range(p_job text, p_from text, p_to text) RETURNS TABLE (low bytea, high bytea)
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN j.descending THEN opendataflow.sort_key(p_to, true) ELSE opendataflow.sort_key(p_from) END,
           CASE WHEN j.descending THEN opendataflow.sort_key(p_from, true) ELSE opendataflow.sort_key(p_to) END
    FROM opendataflow.job j WHERE j.id = p_job
$$;

-- Return the tasks of a job for its grid, without RETIRED ones. p_from, p_to: the first and the last id in natural order, or null.
-- p_part: a part of the data id in any case, or null. `letter`: see dashboard/grid.py.
-- One part for each state: the planner merges their indexes in the order of `sort_key`, and sorts nothing.
CREATE FUNCTION opendataflow.tasks_in_grid(p_job text, p_from text, p_to text, p_part text)
RETURNS TABLE (letter text, data_id text, sort_key bytea)
LANGUAGE sql STABLE AS $$
    SELECT x.letter, x.data_id, x.sort_key FROM (
        SELECT CASE WHEN t.incomplete THEN 'I' WHEN t.stale THEN 'S' ELSE 'D' END AS letter, t.data_id, t.sort_key
        FROM opendataflow.task t WHERE t.job = p_job AND t.state = 'DONE'
        UNION ALL SELECT 'R', t.data_id, t.sort_key FROM opendataflow.task t WHERE t.job = p_job AND t.state = 'RUNNING'
        UNION ALL SELECT 'Q', t.data_id, t.sort_key FROM opendataflow.task t WHERE t.job = p_job AND t.state = 'QUEUED'
        UNION ALL SELECT 'T', t.data_id, t.sort_key FROM opendataflow.task t WHERE t.job = p_job AND t.state = 'RETRYING'
        UNION ALL SELECT 'F', t.data_id, t.sort_key FROM opendataflow.task t WHERE t.job = p_job AND t.state = 'FAILED'
        UNION ALL SELECT 'W', t.data_id, t.sort_key FROM opendataflow.task t WHERE t.job = p_job AND t.state = 'WAITING'
        UNION ALL SELECT 'H', t.data_id, t.sort_key FROM opendataflow.task t WHERE t.job = p_job AND t.state = 'HELD'
        UNION ALL SELECT 'K', t.data_id, t.sort_key FROM opendataflow.task t WHERE t.job = p_job AND t.state = 'SKIPPED') x
    WHERE x.sort_key >= coalesce((SELECT k.low FROM opendataflow.key_range(p_job, p_from, p_to) k), '')
      AND x.sort_key <= coalesce((SELECT k.high FROM opendataflow.key_range(p_job, p_from, p_to) k), x.sort_key)
      AND (p_part IS NULL OR position(lower(p_part) IN lower(x.data_id)) > 0)
$$;

-- Return the cells of a job's grid: one letter for each task in the order of the job, and the version that they belong to.
-- For p_from, p_to and p_part see tasks_in_grid().
CREATE FUNCTION opendataflow.dashboard_cells(p_job text, p_from text, p_to text, p_part text) RETURNS TABLE (version text, cells text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = opendataflow, pg_temp AS $$
    SELECT dashboard_version(), coalesce((
        SELECT string_agg(t.letter, '')
        FROM (SELECT g.letter FROM tasks_in_grid(p_job, p_from, p_to, p_part) g ORDER BY g.sort_key) t), '')
$$;

-- Return the data ids of a job from a position of its grid on.
CREATE FUNCTION opendataflow.dashboard_ids(p_job text, p_from text, p_to text, p_part text, p_offset integer, p_limit integer) RETURNS text[]
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = opendataflow, pg_temp AS $$
    SELECT ARRAY(SELECT t.data_id FROM tasks_in_grid(p_job, p_from, p_to, p_part) t ORDER BY t.sort_key OFFSET p_offset LIMIT p_limit)
$$;

-- Return tasks of a job in its order. p_stale: null for all, else whether they are stale. The others: see tasks_in_grid().
-- The first ones of each state are read by the index over it, so that the first pages of a large job are fast.
CREATE FUNCTION opendataflow.dashboard_tasks(p_job text, p_state text, p_stale boolean, p_from text, p_to text, p_part text,
                                             p_offset integer, p_limit integer)
RETURNS TABLE (data_id text, state text, stale boolean, incomplete boolean, attempts integer, due_at timestamptz, run bigint, reason text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = opendataflow, pg_temp AS $$
    SELECT t.data_id, t.state, t.stale AND t.state = 'DONE', t.incomplete AND t.state = 'DONE', t.attempts, t.due_at, t.run,
           CASE WHEN t.incomplete AND t.state = 'DONE'
                THEN (SELECT 'never made: ' || string_agg(m, ', ') FROM missing_outputs(t.job, t.data_id) m) ELSE t.reason END
    FROM unnest(CASE WHEN p_state IS NULL THEN array_append(unfinished_states(), 'DONE') ELSE ARRAY[p_state] END) AS s(state)
    CROSS JOIN LATERAL (
        SELECT f.* FROM task f CROSS JOIN key_range(p_job, p_from, p_to) k
        WHERE f.job = p_job AND f.state = s.state AND (p_stale IS NULL OR (f.stale AND f.state = 'DONE') = p_stale)
          AND (p_part IS NULL OR position(lower(p_part) IN lower(f.data_id)) > 0)
          AND f.sort_key >= coalesce(k.low, '') AND f.sort_key <= coalesce(k.high, f.sort_key)
        ORDER BY f.sort_key LIMIT p_offset + p_limit) t
    ORDER BY t.sort_key OFFSET p_offset LIMIT p_limit
$$;

-- Return the newest runs of a job, or of one of its tasks.
CREATE FUNCTION opendataflow.dashboard_runs(p_job text, p_data_id text, p_limit integer) RETURNS SETOF jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = opendataflow, pg_temp AS $$
    SELECT to_jsonb(r) FROM list_runs(p_job, p_data_id, p_limit) r
$$;

-- Return the chunk of a task: why it does not run, the evidence for the five answers, and its changes; null if there is no task.
CREATE FUNCTION opendataflow.dashboard_chunk(p_job text, p_data_id text) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = opendataflow, pg_temp AS $$
    SELECT jsonb_build_object('why', w, 'inspection', inspection(p_job, p_data_id), 'events', events_of('task', p_job, p_data_id, 50))
    FROM why(p_job, p_data_id) AS w WHERE w IS NOT NULL
$$;

-- Return a run with its steps, the versions that it read and wrote, and the end of its log; null if there is no run.
CREATE FUNCTION opendataflow.dashboard_run(p_run bigint) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = opendataflow, pg_temp AS $$
    SELECT d || jsonb_build_object('log', (SELECT to_jsonb(l) FROM run_log(NULL, NULL, p_run) l))
    FROM describe_run(p_run) AS d WHERE d IS NOT NULL
$$;

-- Return a data set, see describe_dataset(); null if there is none.
CREATE FUNCTION opendataflow.dashboard_dataset(p_dataset text) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = opendataflow, pg_temp AS $$
    SELECT describe_dataset(p_dataset)
$$;

-- Return chunks of a data set in natural order. p_part: a part of the data id in any case, or null.
CREATE FUNCTION opendataflow.dashboard_chunks(p_dataset text, p_status text, p_part text, p_offset integer, p_limit integer)
RETURNS TABLE (data_id text, status text, stale boolean, fence bigint, run bigint, published_at timestamptz, reason text, forced boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = opendataflow, pg_temp AS $$
    SELECT c.data_id, c.status, c.stale, c.fence, c.run, c.published_at, c.reason, c.forced
    FROM list_chunks(p_dataset, p_status, false, NULL) c
    WHERE p_part IS NULL OR position(lower(p_part) IN lower(c.data_id)) > 0
    OFFSET p_offset LIMIT p_limit
$$;

-- Return all jobs with their links and counts, and all data sets with their chunks by status.
-- `more`: the data set has more than 1000 chunks; only so many are counted.
CREATE FUNCTION opendataflow.dashboard_graph() RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = opendataflow, pg_temp AS $$
    SELECT jsonb_build_object(
        'jobs', (SELECT coalesce(jsonb_agg(jsonb_build_object(
                     'job', l.job, 'state', l.state, 'stale', l.stale, 'inputs', k.inputs, 'outputs', k.outputs,
                     'counts', (SELECT coalesce(jsonb_object_agg(c.state, c.tasks), '{}') FROM counts_of(l.job) c)) ORDER BY l.job), '[]')
                 FROM list_jobs() l JOIN list_links() k ON k.job = l.job),
        'datasets', (SELECT coalesce(jsonb_agg(jsonb_build_object('dataset', d.id, 'more', n.chunks > 1000, 'counts', n.counts) ORDER BY d.id), '[]')
                     FROM dataset d CROSS JOIN LATERAL (
                         SELECT coalesce(sum(c.chunks), 0) AS chunks, coalesce(jsonb_object_agg(c.status, c.chunks), '{}') AS counts
                         FROM (SELECT f.status, count(*) AS chunks
                               FROM (SELECT c.status FROM chunk c WHERE c.dataset = d.id AND c.status <> 'RETIRED' LIMIT 1001) f
                               GROUP BY f.status) c) n))
$$;

-- Return the pipelines of all jobs, with their tests and the steps of the newest of the last 10 runs that has steps.
CREATE FUNCTION opendataflow.dashboard_pipelines() RETURNS TABLE (
    pipeline text, job text, state text, tests jsonb, run bigint, run_state text, data_id text, claimed_at timestamptz, metrics jsonb, steps jsonb)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = opendataflow, pg_temp AS $$
    SELECT j.pipeline, j.id, l.state, describe_gate(j.id, 'tests'), r.run, r.state, r.data_id, r.claimed_at, r.metrics, steps_of(r.run)
    FROM list_jobs() l JOIN job j ON j.id = l.job
    LEFT JOIN LATERAL (SELECT n.* FROM list_runs(j.id, NULL, 10) n WHERE EXISTS (SELECT FROM step s WHERE s.run = n.run)
                       ORDER BY n.run DESC LIMIT 1) r ON true
    WHERE j.pipeline IS NOT NULL AND l.state <> 'Deleted' ORDER BY j.pipeline, j.id
$$;

-- Return jobs, data sets and pipelines whose id has a part, the run with that number, and chunks: those with exactly this id first, then
-- those whose id has the part. At most p_limit of each kind. `owner`: the job or the data set of a chunk.
CREATE FUNCTION opendataflow.dashboard_search(p_part text, p_limit integer) RETURNS TABLE (kind text, owner text, data_id text, state text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = opendataflow, pg_temp AS $$
    (SELECT 'job', l.job, NULL, l.state FROM list_jobs() l JOIN job j ON j.id = l.job
     WHERE l.state <> 'Deleted' AND position(lower(p_part) IN lower(concat_ws(' ', j.id, j.pipeline))) > 0 ORDER BY l.job LIMIT p_limit)
    UNION ALL
    (SELECT 'dataset', d.id, NULL, NULL FROM dataset d WHERE position(lower(p_part) IN lower(d.id)) > 0 ORDER BY d.id LIMIT p_limit)
    UNION ALL
    SELECT 'run', r.job, r.data_id, shown_state(r.state, r.failure_class)
    FROM run r WHERE r.id = CASE WHEN p_part ~ '^[0-9]{1,18}$' THEN p_part::bigint END
    UNION ALL
    (SELECT 'chunk', t.job, t.data_id, t.state FROM job j CROSS JOIN LATERAL task_of(j.id, p_part) t
     WHERE t.state <> 'RETIRED' ORDER BY t.job LIMIT p_limit)
    UNION ALL
    (SELECT 'chunk', t.job, t.data_id, t.state FROM task t
     WHERE t.data_id <> p_part AND t.state <> 'RETIRED' AND position(lower(p_part) IN lower(t.data_id)) > 0 LIMIT p_limit)
    UNION ALL
    (SELECT 'published', c.dataset, c.data_id, c.status FROM dataset d CROSS JOIN LATERAL chunk_of(d.id, p_part) c
     WHERE c.status <> 'RETIRED' AND NOT EXISTS (SELECT FROM job_output o WHERE o.dataset = d.id)
     ORDER BY c.dataset LIMIT p_limit)
$$;

-- Return since when tasks of a job are FAILED: the end of the oldest last run among the first 500 of them.
CREATE FUNCTION opendataflow.failing_since(p_job text) RETURNS timestamptz
LANGUAGE sql STABLE SET search_path = opendataflow, pg_temp AS $$
    SELECT min(r.finished_at)
    FROM (SELECT t.run FROM task t WHERE t.job = p_job AND t.state = 'FAILED' ORDER BY t.sort_key LIMIT 500) f
    CROSS JOIN LATERAL run_of(f.run) AS r
$$;

-- Give the role of the dashboard its rights, if the role exists: to the functions above, and to the version of the schema.
-- A migration calls it, because it replaces the functions. Roles belong to all databases of a server, so no migration makes one.
CREATE FUNCTION opendataflow.grant_dashboard() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_function regprocedure;
BEGIN
    FOR v_function IN SELECT p.oid FROM pg_proc p
                      WHERE p.pronamespace = 'opendataflow'::regnamespace AND starts_with(p.proname, 'dashboard_')
    LOOP
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', v_function);
        IF to_regrole('opendataflow_dashboard') IS NOT NULL THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO opendataflow_dashboard', v_function);
        END IF;
    END LOOP;
    REVOKE EXECUTE ON FUNCTION opendataflow.grant_dashboard() FROM PUBLIC;
    IF to_regrole('opendataflow_dashboard') IS NOT NULL THEN
        GRANT USAGE ON SCHEMA opendataflow TO opendataflow_dashboard;
        GRANT SELECT ON opendataflow.migration, opendataflow.installed TO opendataflow_dashboard;
    END IF;
END $$;
SELECT opendataflow.grant_dashboard();
