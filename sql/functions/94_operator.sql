-- Data for the statuses of resources. These functions only read.

-- Return the last FAILED and LOST runs of a job, newest first. Runs of class NotStarted are omitted.
CREATE FUNCTION opendataflow.last_failures(p_job text, p_limit integer)
RETURNS TABLE (data_id text, run bigint, reason text, message text, at timestamptz, forced boolean)
LANGUAGE sql STABLE AS $$
    SELECT r.data_id, r.id, r.failure_class, coalesce(r.message, ''), r.finished_at, r.forced FROM opendataflow.run r
    WHERE r.job = p_job AND r.state IN ('FAILED', 'LOST') AND r.failure_class IS DISTINCT FROM 'NotStarted'
    ORDER BY r.finished_at DESC LIMIT p_limit
$$;

-- Return the data for the statuses of several jobs with one statement.
-- Contains job_status(), the last failures and the last executed request.
-- (plpgsql, because job_status() is defined in a later file.)
CREATE FUNCTION opendataflow.job_reports(p_jobs text[], p_failures integer) RETURNS TABLE (job text, report jsonb)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
    SELECT j.id, job_status(j.id) || jsonb_build_object(
        'last_failures', (SELECT coalesce(jsonb_agg(to_jsonb(f)), '[]') FROM last_failures(j.id, p_failures) f),
        'resubmit', (SELECT jsonb_build_object('id', q.id, 'answer', q.answer) FROM request q WHERE q.owner = 'job ' || j.id))
    FROM job j WHERE j.id = ANY (p_jobs);
END $$;

-- Return the number of chunks by status, a hash of the ids that are not READY, and whether more chunks follow (`declaring`: {declared, total});
-- null if the data set is unknown.
-- Reads every chunk: 0.2 seconds for a million.
CREATE FUNCTION opendataflow.dataset_counts(p_dataset text) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = opendataflow, pg_temp AS $$
    SELECT (SELECT jsonb_build_object('counts', coalesce(jsonb_object_agg(n.status, n.chunks), '{}'),
                                      'missing', coalesce(sum(n.ids) FILTER (WHERE n.status <> 'READY'), 0),
                                      'declaring', declaring_behind(ARRAY[d.id], '{}'))
            FROM (SELECT c.status, count(*) AS chunks, sum(hashtextextended(c.data_id, 0)) AS ids
                  FROM chunk c WHERE c.dataset = d.id AND c.status <> 'RETIRED' GROUP BY c.status) n)
    FROM dataset d WHERE d.id = p_dataset
$$;

-- Return the id through which a data set is complete (key `watermark`; null while more chunks follow, which may come before it), and the first gaps before the last READY chunk.
-- Sorts every chunk: 30 seconds for a million, so callers must make long pauses.
-- Ids with digits at the same positions, like dates, need no computed key.
CREATE FUNCTION opendataflow.dataset_gaps(p_dataset text, p_gaps integer) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = opendataflow, pg_temp SET work_mem = '64MB' SET jit = off AS $$
    WITH shape AS MATERIALIZED (
        SELECT min(s.shape) = max(s.shape) AS is_one
        FROM (SELECT translate(c.data_id, '123456789', '000000000') COLLATE "C" AS shape FROM chunk c WHERE c.dataset = p_dataset AND c.status <> 'RETIRED') s
    ), c AS MATERIALIZED (
        SELECT c.data_id, c.status = 'READY' AS is_ready,
               CASE WHEN (SELECT s.is_one FROM shape s) THEN convert_to(c.data_id, 'UTF8') ELSE sort_key(c.data_id) END AS key
        FROM chunk c WHERE c.dataset = p_dataset AND c.status <> 'RETIRED'
    ), edge AS MATERIALIZED (
        -- Before version 18 bytea has neither min nor max.
        SELECT (SELECT c.key FROM c WHERE NOT c.is_ready ORDER BY c.key LIMIT 1) AS first_missing,
               (SELECT c.key FROM c WHERE c.is_ready ORDER BY c.key DESC LIMIT 1) AS last_ready
    ), placed AS (  -- the chunks of one gap have the same number of READY chunks before them
        SELECT c.data_id, c.is_ready, c.key, count(*) FILTER (WHERE c.is_ready) OVER (ORDER BY c.key ROWS UNBOUNDED PRECEDING) AS before
        FROM c, edge e WHERE c.key >= e.first_missing AND c.key <= e.last_ready
    ), gap AS (
        SELECT (array_agg(p.data_id ORDER BY p.key))[1] AS "from", (array_agg(p.data_id ORDER BY p.key DESC))[1] AS "to",
               count(*) AS chunks, p.before
        FROM placed p WHERE NOT p.is_ready
        GROUP BY p.before ORDER BY p.before LIMIT p_gaps
    )
    SELECT jsonb_build_object(
        'watermark', (SELECT c.data_id FROM c, edge e
                      WHERE declaring_behind(ARRAY[p_dataset], '{}') IS NULL AND c.is_ready AND (e.first_missing IS NULL OR c.key < e.first_missing)
                      ORDER BY c.key DESC LIMIT 1),
        'gaps', (SELECT coalesce(jsonb_agg(jsonb_build_object('from', g."from", 'to', g."to", 'chunks', g.chunks) ORDER BY g.before), '[]')
                 FROM gap g))
$$;
