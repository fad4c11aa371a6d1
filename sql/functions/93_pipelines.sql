-- Runs of pipelines with their steps, for `dataflow pipeline history`. These functions only read.

-- Return the newest runs of pipelines first. Null arguments do not filter.
-- p_dataset: runs that write this data set. p_failed: runs that have ended without success.
-- A run belongs to the pipeline that its job runs now.
CREATE FUNCTION opendataflow.pipeline_runs(p_pipeline text, p_dataset text, p_data_id text, p_failed boolean,
                                           p_run bigint, p_limit integer)
RETURNS TABLE (
    run bigint, pipeline text, job text, data_id text, state text, attempt integer, claimed_at timestamptz,
    finished_at timestamptz, seconds double precision, failure_class text, message text, log_path text, metrics jsonb, steps jsonb)
LANGUAGE sql STABLE AS $$
    SELECT r.id, r.pipeline, r.job, r.data_id, opendataflow.shown_state(r.state, r.failure_class), r.attempt, r.claimed_at, r.finished_at,
           round(extract(epoch FROM coalesce(r.finished_at, clock_timestamp()) - r.claimed_at)::numeric, 1)::double precision,
           r.failure_class, r.message, r.log_path, r.metrics, opendataflow.steps_of(r.id)
    FROM (SELECT j.pipeline, n.* FROM opendataflow.job j
          CROSS JOIN LATERAL (SELECT * FROM opendataflow.run x
                              WHERE x.job = j.id AND (p_data_id IS NULL OR x.data_id = p_data_id)
                                AND (p_dataset IS NULL OR p_dataset = ANY (x.writes))
                                AND (p_run IS NULL OR x.id = p_run)
                                AND (NOT p_failed OR x.state NOT IN ('RUNNING', 'SUCCEEDED'))
                              ORDER BY x.id DESC LIMIT p_limit) n
          WHERE j.pipeline IS NOT NULL AND (p_pipeline IS NULL OR j.pipeline = p_pipeline)
          ORDER BY n.id DESC LIMIT p_limit) r
    ORDER BY r.id DESC
$$;

-- Return the pipelines of all jobs.
CREATE FUNCTION opendataflow.pipelines() RETURNS SETOF text
LANGUAGE sql STABLE AS $$
    SELECT DISTINCT j.pipeline FROM opendataflow.job j WHERE j.pipeline IS NOT NULL ORDER BY 1
$$;
