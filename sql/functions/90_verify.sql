-- Recompute all invariants from the rows and return one sentence for each violation.
-- One statement sees all rows in one snapshot.
CREATE FUNCTION opendataflow.verify() RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = opendataflow, pg_temp AS $$
    WITH live AS (SELECT t.* FROM task t JOIN job j ON j.id = t.job WHERE NOT j.deleted)

    SELECT format('task %s/%s is %s with %s blockers, but %s things block it', t.job, t.data_id, t.state, t.blockers, b.n)
    FROM live t, LATERAL (
        SELECT (SELECT count(*) FROM job_input i
                WHERE i.job = t.job AND NOT t.forced
                  AND NOT EXISTS (SELECT FROM chunk_of(i.dataset, t.data_id) c WHERE c.status = 'READY'))
             + (SELECT count(*) FROM job_output o CROSS JOIN chunk_of(o.dataset, t.data_id) c
                WHERE o.job = t.job AND CASE WHEN t.forced THEN c.status IN ('RUNNING', 'HOLD') ELSE
                                         c.readers > 0 OR c.status NOT IN ('DECLARED', 'RESUBMIT', 'FAILED')
                                         OR (c.status = 'FAILED' AND NOT EXISTS (
                                             SELECT FROM run_of(c.run) r WHERE r.job = t.job AND r.id = t.run)) END) AS n) b
    WHERE t.state IN ('WAITING', 'QUEUED', 'RETRYING') AND b.n <> t.blockers

    UNION ALL
    SELECT format('task %s/%s is WAITING and nothing blocks it', t.job, t.data_id) FROM live t
    WHERE t.state = 'WAITING' AND t.blockers = 0

    UNION ALL
    SELECT format('task %s/%s is RUNNING, but its run %s is %s', t.job, t.data_id, t.run, coalesce(r.state, 'not there'))
    FROM task t LEFT JOIN run_of(t.run) r ON r.job = t.job AND r.data_id = t.data_id AND r.fence = t.fence
    WHERE t.state = 'RUNNING' AND r.state IS DISTINCT FROM 'RUNNING'

    UNION ALL
    SELECT format('run %s is RUNNING, but its task %s/%s is %s', r.id, r.job, r.data_id, coalesce(t.state, 'not there'))
    FROM run r LEFT JOIN task_of(r.job, r.data_id) t ON t.run = r.id
    WHERE r.state = 'RUNNING' AND t.state IS DISTINCT FROM 'RUNNING'

    UNION ALL
    SELECT format('chunk %s/%s has %s readers, but %s running runs read it', c.dataset, c.data_id, c.readers, n.readers)
    FROM chunk c, LATERAL (SELECT count(*) AS readers FROM run r
                           WHERE r.state = 'RUNNING' AND c.dataset = ANY (r.reads) AND r.data_id = c.data_id) n
    WHERE c.readers <> n.readers

    UNION ALL
    SELECT format('chunk %s/%s is RUNNING, but no running run writes it', c.dataset, c.data_id) FROM chunk c
    WHERE c.status = 'RUNNING' AND NOT EXISTS (
        SELECT FROM run_of(c.run) r WHERE r.state = 'RUNNING' AND c.dataset = ANY (r.writes)
                            AND r.data_id = c.data_id AND r.fence = c.fence)

    UNION ALL
    SELECT format('run %s writes %s/%s, but the chunk is %s', r.id, d, r.data_id, coalesce(c.status, 'not there'))
    FROM run r CROSS JOIN unnest(r.writes) AS d LEFT JOIN chunk_of(d, r.data_id) c ON true
    WHERE r.state = 'RUNNING' AND (c.status IS DISTINCT FROM 'RUNNING' OR c.run <> r.id)

    UNION ALL
    SELECT format('only one of task %s/%s and its run %s is forced', t.job, t.data_id, r.id)
    FROM task t CROSS JOIN run_of(t.run) r WHERE t.state = 'RUNNING' AND r.forced <> t.forced

    UNION ALL
    SELECT format('job %s has no task for %s, an id of its data set %s', s.job, c.data_id, s.dataset)
    FROM job_source s JOIN job j ON j.id = s.job AND NOT j.deleted JOIN chunk c ON c.dataset = s.dataset
    WHERE in_range(c.data_id, j.chunk_from, j.chunk_to) AND c.retired_from IS NULL
      AND NOT EXISTS (SELECT FROM declaring n WHERE n.kind = 'job' AND n.id = s.job AND (c.dataset, c.data_id) > (n.after_dataset, n.after_id))
      AND NOT EXISTS (SELECT FROM task_of(s.job, c.data_id) t WHERE t.state <> 'RETIRED')

    UNION ALL
    SELECT format('data set %s has declared %s of %s chunks, but %s of them are there', n.id, n.declared, n.total, c.n)
    FROM declaring n CROSS JOIN LATERAL (SELECT count(*) AS n FROM chunk c WHERE c.dataset = n.id AND c.in_source) c
    WHERE n.kind = 'dataset' AND (c.n <> n.declared OR n.declared = n.total)

    UNION ALL
    SELECT format('the %s %s is being declared, but there is none', n.kind, n.id) FROM declaring n
    WHERE NOT EXISTS (SELECT FROM dataset d WHERE n.kind = 'dataset' AND d.id = n.id)
      AND NOT EXISTS (SELECT FROM job j WHERE n.kind = 'job' AND j.id = n.id AND NOT j.deleted)

    UNION ALL
    SELECT format('task %s/%s has no chunk in its data set %s', t.job, t.data_id, l.dataset)
    FROM live t JOIN job_dataset l ON l.job = t.job AND spreads_to(l.job, l.dataset)
    WHERE t.state NOT IN ('DONE', 'RUNNING', 'HELD', 'SKIPPED', 'RETIRED') AND NOT EXISTS (SELECT FROM chunk_of(l.dataset, t.data_id))

    UNION ALL
    SELECT format('chunk %s/%s is READY, but task %s/%s that makes it is %s', c.dataset, c.data_id, t.job, t.data_id, t.state)
    FROM chunk c JOIN job_output o ON o.dataset = c.dataset JOIN job j ON j.id = o.job AND NOT j.deleted
    CROSS JOIN task_of(o.job, c.data_id) t
    WHERE c.status = 'READY' AND t.state IN ('WAITING', 'QUEUED', 'RETRYING')

    UNION ALL
    SELECT format('task %s/%s is RETIRED, but its id is in a source of its job', t.job, t.data_id)
    FROM live t WHERE t.state = 'RETIRED' AND has_source(t.job, t.data_id)

    UNION ALL
    SELECT format('task %s/%s is %s, but all its source chunks are retired', t.job, t.data_id, t.state)
    FROM live t WHERE t.state NOT IN ('RETIRED', 'RUNNING')
      AND EXISTS (SELECT FROM job_source s CROSS JOIN chunk_of(s.dataset, t.data_id) c WHERE s.job = t.job AND c.retired_from IS NOT NULL)
      AND NOT has_source(t.job, t.data_id)

    UNION ALL
    SELECT format('chunk %s/%s is retired, but its data set has it: %s', c.dataset, c.data_id,
                  CASE WHEN c.in_source THEN 'by its chunk source' ELSE 'by hand' END)
    FROM chunk c WHERE c.retired_from IS NOT NULL AND (c.in_source OR c.by_hand)

    UNION ALL
    SELECT format('task %s/%s is DONE and %s, but %s of its outputs were never made', t.job, t.data_id,
                  CASE WHEN t.incomplete THEN 'incomplete' ELSE 'complete' END, m.n)
    FROM live t CROSS JOIN LATERAL (SELECT count(*) AS n FROM missing_outputs(t.job, t.data_id)) m
    WHERE t.state = 'DONE' AND t.incomplete <> (m.n > 0)

    UNION ALL
    SELECT format('task %s/%s has another sort key than its order gives', t.job, t.data_id)
    FROM task t JOIN job j ON j.id = t.job WHERE NOT j.deleted AND t.sort_key <> sort_key(t.data_id, j.descending)

    UNION ALL
    SELECT format('job %s has %s tasks that are %s, but they are counted as %s', n.job, sum(n.tasks), n.state, sum(n.counted))
    FROM (SELECT t.job, t.state, 1 AS tasks, 0 AS counted FROM task t
          UNION ALL SELECT c.job, c.state, 0, c.tasks FROM task_count c) n
    GROUP BY n.job, n.state HAVING sum(n.tasks) <> sum(n.counted)

    UNION ALL
    SELECT format('job %s has %s stale tasks, but they are counted as %s', n.job, sum(n.stale), sum(n.counted))
    FROM (SELECT t.job, 1 AS stale, 0 AS counted FROM task t WHERE t.stale AND t.state = 'DONE'
          UNION ALL SELECT c.job, 0, c.stale FROM task_count c) n
    GROUP BY n.job HAVING sum(n.stale) <> sum(n.counted)

    UNION ALL
    SELECT format('chunk %s/%s has fencing token %s, which was never issued', c.dataset, c.data_id, c.fence)
    FROM chunk c, fence f WHERE c.fence > f.last_value

    UNION ALL
    SELECT format('the breaker of job %s waits for its probe %s, which is %s', b.job, b.probe, coalesce(r.state, 'not there'))
    FROM breaker b LEFT JOIN run_of(b.probe) r ON r.job = b.job
    WHERE b.probe IS NOT NULL AND r.state IS DISTINCT FROM 'RUNNING'

    UNION ALL
    SELECT format('the breaker of job %s is %s with %s chunks that failed in a row', b.job,
                  CASE WHEN b.opened_at IS NULL THEN 'closed' ELSE 'open' END, cardinality(b.failed))
    FROM breaker b WHERE (b.opened_at IS NULL) <> (cardinality(b.failed) < breaker_threshold())

    UNION ALL
    SELECT format('the breaker of job %s counts run %s of %s as failed, which is %s', b.job, f.run, f.data_id, r.state)
    FROM breaker b CROSS JOIN LATERAL unnest(b.failed, b.runs) AS f(data_id, run) CROSS JOIN run_of(f.run) r
    WHERE r.state <> 'FAILED' OR r.job <> b.job OR r.data_id <> f.data_id

    UNION ALL
    SELECT format('%s %s/%s is %s, but its history ends with %s', n.kind, n.owner, n.data_id, n.state, h.to_state)
    FROM (SELECT 'chunk' AS kind, dataset AS owner, data_id, status AS state FROM chunk
          UNION ALL SELECT 'task', job, data_id, state FROM task) n,
         LATERAL (SELECT h.to_state FROM history_of(n.kind, n.owner, n.data_id) h ORDER BY h.id DESC LIMIT 1) h
    WHERE h.to_state NOT IN (n.state, 'GONE')
$$;
