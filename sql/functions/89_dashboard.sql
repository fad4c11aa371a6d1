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

-- Return the cells of a job's grid: one letter for each task in the order of the job, and the version that they belong to.
-- The letters are those of dashboard/grid.py.
CREATE FUNCTION opendataflow.dashboard_cells(p_job text) RETURNS TABLE (version text, cells text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = opendataflow, pg_temp AS $$
    SELECT dashboard_version(), coalesce((
        SELECT string_agg(t.letter, '') FROM (
            SELECT CASE t.state WHEN 'DONE' THEN CASE WHEN t.incomplete THEN 'I' WHEN t.stale THEN 'S' ELSE 'D' END
                                WHEN 'RETRYING' THEN 'T' WHEN 'SKIPPED' THEN 'K' ELSE left(t.state, 1) END AS letter
            FROM task t WHERE t.job = p_job AND t.state <> 'RETIRED' ORDER BY t.sort_key) t), '')
$$;

-- Return the data ids of a job from a position of its grid on.
CREATE FUNCTION opendataflow.dashboard_ids(p_job text, p_offset integer, p_limit integer) RETURNS text[]
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = opendataflow, pg_temp AS $$
    SELECT ARRAY(SELECT t.data_id FROM task t WHERE t.job = p_job AND t.state <> 'RETIRED' ORDER BY t.sort_key OFFSET p_offset LIMIT p_limit)
$$;

-- Return tasks of a job in its order. p_stale: null for all, else whether they are stale. p_part: a part of the data id, or null.
CREATE FUNCTION opendataflow.dashboard_tasks(p_job text, p_state text, p_stale boolean, p_part text, p_offset integer, p_limit integer)
RETURNS TABLE (data_id text, state text, stale boolean, incomplete boolean, attempts integer, due_at timestamptz, run bigint, reason text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = opendataflow, pg_temp AS $$
    SELECT t.data_id, t.state, t.stale, t.incomplete, t.attempts, t.due_at, t.run, t.reason
    FROM list_tasks(p_job, p_state, false, NULL) t
    WHERE (p_stale IS NULL OR t.stale = p_stale) AND (p_part IS NULL OR position(lower(p_part) IN lower(t.data_id)) > 0)
    OFFSET p_offset LIMIT p_limit
$$;

-- Return the newest runs of a job, or of one of its tasks.
CREATE FUNCTION opendataflow.dashboard_runs(p_job text, p_data_id text, p_limit integer) RETURNS SETOF jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = opendataflow, pg_temp AS $$
    SELECT to_jsonb(r) FROM list_runs(p_job, p_data_id, p_limit) r
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
