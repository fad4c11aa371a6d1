-- Queries of people and engines. These functions only read.

-- Return the state of a run for people. A LOST run of class NotStarted is GIVEN_BACK: it neither worked nor failed.
CREATE FUNCTION opendataflow.shown_state(p_state text, p_class text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_state = 'LOST' AND p_class = 'NotStarted' THEN 'GIVEN_BACK' ELSE p_state END
$$;

-- Return the inputs and outputs of each job that is not deleted, to check the graph.
CREATE FUNCTION opendataflow.list_links() RETURNS TABLE (job text, inputs text[], outputs text[])
LANGUAGE sql STABLE AS $$
    SELECT j.id,
           ARRAY(SELECT i.dataset FROM opendataflow.job_input i WHERE i.job = j.id ORDER BY 1),
           ARRAY(SELECT o.dataset FROM opendataflow.job_output o WHERE o.job = j.id ORDER BY 1)
    FROM opendataflow.job j WHERE NOT j.deleted ORDER BY j.id
$$;

-- Return what an engine needs about jobs: limits, environment items, test results, and data sets as runs see them.
CREATE FUNCTION opendataflow.job_facts(p_jobs text[]) RETURNS TABLE (job jsonb, datasets jsonb)
LANGUAGE sql STABLE AS $$
    SELECT to_jsonb(j) || jsonb_build_object('env', (SELECT coalesce(jsonb_object_agg(e.name, e.value), '{}')
                                                     FROM opendataflow.job_env e WHERE e.job = j.id),
                                            'tests', opendataflow.describe_gate(j.id, 'tests')), coalesce(
        (SELECT jsonb_agg(to_jsonb(d) || jsonb_build_object('itemtype', l.itemtype) ORDER BY l.itemtype, l.dataset)
         FROM opendataflow.job_dataset l JOIN opendataflow.dataset d ON d.id = l.dataset WHERE l.job = j.id), '[]')
    FROM opendataflow.job j WHERE j.id = ANY (p_jobs) ORDER BY j.id
$$;

-- Return the number of tasks of jobs by state, and how many of the DONE tasks are stale.
-- `probed_in_vain`: the breaker is open and more probes have failed than a chunk has retries.
-- It is also true if a gate of the job is closed, or if only looks at missing locations of chunks are left.
-- `incomplete`: an output of a DONE task was never made. `declaring`: more tasks follow, see declaring_behind().
CREATE FUNCTION opendataflow.progress(p_jobs text[])
RETURNS TABLE (job text, counts jsonb, probed_in_vain boolean, stale bigint, incomplete boolean, declaring jsonb)
LANGUAGE sql STABLE AS $$
    SELECT j, coalesce((SELECT jsonb_object_agg(c.state, c.tasks) FROM opendataflow.counts_of(j) c), '{}'),
           EXISTS (SELECT FROM opendataflow.breaker b JOIN opendataflow.job x ON x.id = b.job
                   WHERE b.job = j AND b.opened_at IS NOT NULL AND b.probes > x.retry_limit)
           OR opendataflow.claim_limit_by_gates(j) IS NOT NULL
           OR opendataflow.looked_in_vain(j),
           opendataflow.stale_of(j),
           EXISTS (SELECT FROM opendataflow.task t WHERE t.job = j AND t.incomplete AND t.state = 'DONE'),
           opendataflow.declaring_of_job(j)
    FROM unnest(p_jobs) AS j
$$;

-- Return the given jobs that have QUEUED tasks and may claim now, according to their breaker and their gates.
CREATE FUNCTION opendataflow.claimable_jobs(p_jobs text[]) RETURNS SETOF text
LANGUAGE sql STABLE AS $$
    SELECT j FROM unnest(p_jobs) AS j
    WHERE EXISTS (SELECT FROM opendataflow.task t WHERE t.job = j AND t.state = 'QUEUED')
      AND NOT EXISTS (SELECT FROM opendataflow.breaker b
                      WHERE b.job = j AND b.opened_at IS NOT NULL AND (opendataflow.probe_position(b, NULL)).free = 0)
      AND opendataflow.claim_limit_by_gates(j) IS DISTINCT FROM 0
$$;

-- Return all jobs with their state and their task counts. A job is Stale if all is done and a DONE task is stale.
-- A job is Declaring if nothing of it runs or has failed, and more tasks follow.
CREATE FUNCTION opendataflow.list_jobs() RETURNS TABLE (
    job text, state text, done bigint, total bigint, stale bigint, running bigint, retrying bigint, failed bigint, parallelism integer,
    inputs text, outputs text)
LANGUAGE sql STABLE AS $$
    SELECT j.id,
           CASE WHEN j.deleted THEN 'Deleted' WHEN j.suspended THEN 'Suspended'
                WHEN EXISTS (SELECT FROM opendataflow.breaker b WHERE b.job = j.id AND b.opened_at IS NOT NULL) THEN 'BreakerOpen'
                WHEN w.running > 0 THEN 'Running'
                WHEN w.failed > 0 THEN 'Failed'
                WHEN opendataflow.declaring_of_job(j.id) IS NOT NULL AND w.queued = 0 THEN 'Declaring'
                WHEN w.total > 0 AND w.done + w.skipped = w.total
                THEN CASE WHEN EXISTS (SELECT FROM opendataflow.task t WHERE t.job = j.id AND t.incomplete AND t.state = 'DONE')
                     THEN 'Incomplete' WHEN s.stale > 0 THEN 'Stale' ELSE 'Done' END
                WHEN w.queued > 0 THEN 'Queued' ELSE 'Waiting' END,
           w.done, w.total, s.stale, w.running, w.retrying, w.failed, j.parallelism,
           (SELECT string_agg(i.dataset, ', ' ORDER BY i.dataset) FROM opendataflow.job_input i WHERE i.job = j.id),
           (SELECT string_agg(o.dataset, ', ' ORDER BY o.dataset) FROM opendataflow.job_output o WHERE o.job = j.id)
    FROM opendataflow.job j, LATERAL (
        SELECT coalesce(sum(c.tasks), 0)::bigint AS total,
               coalesce(sum(c.tasks) FILTER (WHERE c.state = 'DONE'), 0)::bigint AS done,
               coalesce(sum(c.tasks) FILTER (WHERE c.state = 'RUNNING'), 0)::bigint AS running,
               coalesce(sum(c.tasks) FILTER (WHERE c.state = 'RETRYING'), 0)::bigint AS retrying,
               coalesce(sum(c.tasks) FILTER (WHERE c.state = 'FAILED'), 0)::bigint AS failed,
               coalesce(sum(c.tasks) FILTER (WHERE c.state = 'QUEUED'), 0)::bigint AS queued,
               coalesce(sum(c.tasks) FILTER (WHERE c.state = 'SKIPPED'), 0)::bigint AS skipped
        FROM opendataflow.counts_of(j.id) c) w, LATERAL (SELECT opendataflow.stale_of(j.id) AS stale) s
    ORDER BY j.id
$$;

-- Return all data sets with their producer, consumers and chunk counts. Reads every chunk.
-- `declaring`: how many of how many chunks are declared, while more follow.
CREATE FUNCTION opendataflow.list_datasets() RETURNS TABLE (
    dataset text, kind text, place text, producer text, consumers text, ready bigint, failed bigint, chunks bigint, declaring text)
LANGUAGE sql STABLE AS $$
    SELECT d.id, coalesce(d.kind, d.format), coalesce(d.url, concat_ws('.', d.database, d.schemaname, d.tablename)),
           (SELECT o.job FROM opendataflow.job_output o WHERE o.dataset = d.id),
           (SELECT string_agg(i.job, ', ' ORDER BY i.job) FROM opendataflow.job_input i WHERE i.dataset = d.id),
           c.ready, c.failed, c.chunks, n.found ->> 'declared' || ' of ' || (n.found ->> 'total')
    FROM opendataflow.dataset d CROSS JOIN LATERAL (SELECT opendataflow.declaring_behind(ARRAY[d.id], '{}') AS found) n, LATERAL (
        SELECT count(*) AS chunks, count(*) FILTER (WHERE c.status = 'READY') AS ready,
               count(*) FILTER (WHERE c.status = 'FAILED') AS failed
        FROM opendataflow.chunk c WHERE c.dataset = d.id AND c.status <> 'RETIRED') c
    ORDER BY d.id
$$;

-- Return chunks in natural order, of one data set or all, in one status or all. `stale`: its task is DONE and stale.
-- p_stale: only stale chunks. All statuses do not include RETIRED.
CREATE FUNCTION opendataflow.list_chunks(p_dataset text, p_status text, p_stale boolean, p_limit integer) RETURNS TABLE (
    dataset text, data_id text, status text, stale boolean, fence bigint, run bigint, readers integer,
    published_at timestamptz, reason text, forced boolean)
LANGUAGE sql STABLE AS $$
    SELECT c.dataset, c.data_id, c.status, t.data_id IS NOT NULL, c.fence, c.run, c.readers, c.published_at,
           CASE WHEN c.status = 'RETIRED' THEN opendataflow.reason_of_id(c.retired_from, c.status) ELSE c.reason END,
           coalesce((SELECT r.forced FROM opendataflow.run_of(c.run) AS r), false)
    FROM opendataflow.chunk c
    LEFT JOIN opendataflow.job_output o ON o.dataset = c.dataset
    LEFT JOIN opendataflow.task t ON t.job = o.job AND t.data_id = c.data_id AND t.stale AND t.state = 'DONE'
    WHERE (p_dataset IS NULL OR c.dataset = p_dataset) AND CASE WHEN p_status IS NULL THEN c.status <> 'RETIRED' ELSE c.status = p_status END
      AND (NOT p_stale OR t.data_id IS NOT NULL)
    ORDER BY c.dataset, opendataflow.sort_key(c.data_id) LIMIT p_limit
$$;

-- Return tasks in the order of their job, of one job or all, in one state or all. All do not include RETIRED. `stale`: DONE, and stale.
-- `incomplete`: DONE, and an output was never made; the reason names it. p_stale: only stale tasks.
CREATE FUNCTION opendataflow.list_tasks(p_job text, p_state text, p_stale boolean, p_limit integer) RETURNS TABLE (
    job text, data_id text, state text, stale boolean, incomplete boolean, blockers integer, attempts integer, infrastructure_attempts integer,
    due_at timestamptz, run bigint, reason text)
LANGUAGE sql STABLE AS $$
    SELECT t.job, t.data_id, t.state, t.stale AND t.state = 'DONE', t.incomplete AND t.state = 'DONE', t.blockers, t.attempts,
           t.infrastructure_attempts, t.due_at, t.run,
           CASE WHEN t.incomplete AND t.state = 'DONE'
                THEN (SELECT 'never made: ' || string_agg(m, ', ') FROM opendataflow.missing_outputs(t.job, t.data_id) m)
                WHEN t.state = 'RETIRED' THEN opendataflow.reason_of_id(t.retired_from, t.state) ELSE t.reason END
    FROM opendataflow.task t
    WHERE (p_job IS NULL OR t.job = p_job) AND CASE WHEN p_state IS NULL THEN t.state <> 'RETIRED' ELSE t.state = p_state END
      AND (NOT p_stale OR (t.stale AND t.state = 'DONE'))
    ORDER BY t.job, t.sort_key LIMIT p_limit
$$;

-- Return the newest runs first, of a task, of a job, or of all jobs.
CREATE FUNCTION opendataflow.list_runs(p_job text, p_data_id text, p_limit integer) RETURNS TABLE (
    run bigint, job text, data_id text, state text, attempt integer, fence bigint, host text, claimed_at timestamptz,
    finished_at timestamptz, seconds double precision, failure_class text, exit_code integer, message text, log_path text,
    metrics jsonb, forced boolean)
LANGUAGE sql STABLE AS $$
    SELECT r.id, r.job, r.data_id, opendataflow.shown_state(r.state, r.failure_class), r.attempt, r.fence, r.host, r.claimed_at, r.finished_at,
           round(extract(epoch FROM coalesce(r.finished_at, clock_timestamp()) - r.claimed_at)::numeric, 1)::double precision,
           r.failure_class, r.exit_code, r.message, r.log_path, r.metrics, r.forced
    FROM (SELECT * FROM opendataflow.runs_of(p_job, p_data_id)
          UNION ALL
          (SELECT * FROM opendataflow.run r WHERE p_data_id IS NULL AND (p_job IS NULL OR r.job = p_job) ORDER BY r.id DESC LIMIT p_limit)) r
    ORDER BY r.id DESC LIMIT p_limit
$$;

-- Return the last run of a task, or the run with an id, with the end of its log.
CREATE FUNCTION opendataflow.run_log(p_job text, p_data_id text, p_run bigint) RETURNS TABLE (
    run bigint, job text, data_id text, state text, message text, attempt integer, runs_home text, nonce uuid, log_path text, log_tail text)
LANGUAGE sql STABLE AS $$
    SELECT r.id, r.job, r.data_id, opendataflow.shown_state(r.state, r.failure_class), r.message, r.attempt, r.runs_home, r.nonce, r.log_path, r.log_tail
    FROM (SELECT * FROM opendataflow.run r WHERE r.id = p_run
          UNION ALL SELECT * FROM opendataflow.runs_of(p_job, p_data_id) WHERE p_run IS NULL) r
    ORDER BY r.id DESC LIMIT 1
$$;

-- Return the status of one job, for one screen. Except for the stored counts, no part reads more than `sample` rows.
-- `stale`: the number of DONE tasks that are stale; `stale_examples`: some of them.
-- `gaps`: tasks that are not DONE before the last DONE task, in the job's order.
-- `watermark`: the id through which the job is complete; null while more tasks follow (`declaring`), which may come before it.
-- Reasons of failures that differ in the data id only are one group, with `…` for the id.
-- Failures, blockers, missing outputs of DONE tasks and gaps are counted among the first `sample` tasks only.
-- `per_minute`: successes in the last 15 minutes of work, or since the first of them was claimed. The work ends now if a run is
-- active, else with the last run: the rate of a job that rests stays as it was.
CREATE FUNCTION opendataflow.job_status(p_job text) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = opendataflow, pg_temp AS $$
    WITH few AS (
        SELECT 500 AS sample
    ), counted AS MATERIALIZED (
        SELECT * FROM counts_of(p_job)
    ), edge AS (
        SELECT (SELECT f.sort_key FROM unnest(unfinished_states()) AS s(state)
                CROSS JOIN LATERAL ((SELECT w.sort_key FROM task w WHERE w.job = p_job AND w.state = s.state ORDER BY w.sort_key LIMIT 1)
                                    UNION ALL (SELECT w.sort_key FROM task w WHERE w.job = p_job AND w.incomplete AND w.state = 'DONE'
                                               ORDER BY w.sort_key LIMIT 1)
                                    ORDER BY sort_key LIMIT 1) f ORDER BY f.sort_key LIMIT 1) AS first_open,
               (SELECT w.sort_key FROM task w WHERE w.job = p_job AND w.state = 'DONE'
                ORDER BY w.sort_key DESC LIMIT 1) AS last_done
    ), gap AS MATERIALIZED (
        SELECT g.data_id, g.sort_key FROM edge e
        CROSS JOIN unnest(unfinished_states()) AS s(state)
        CROSS JOIN LATERAL (SELECT w.data_id, w.sort_key FROM task w
                            WHERE w.job = p_job AND w.state = s.state AND w.sort_key < e.last_done
                            ORDER BY w.sort_key LIMIT (SELECT sample FROM few)) g
        ORDER BY g.sort_key LIMIT (SELECT sample FROM few)
    ), recent AS (
        SELECT count(*) FILTER (WHERE r.state = 'SUCCEEDED') AS n,
               greatest(extract(epoch FROM CASE WHEN EXISTS (SELECT FROM run a WHERE a.job = p_job AND a.state = 'RUNNING')
                                           THEN clock_timestamp() ELSE max(r.finished_at) END
                   - CASE WHEN count(*) < (SELECT sample FROM few)
                     THEN greatest(min(r.claimed_at), max(r.finished_at) - interval '15 min') ELSE min(r.finished_at) END), 1) AS seconds
        FROM (SELECT r.state, r.claimed_at, r.finished_at, max(r.finished_at) OVER () - interval '15 min' AS since
              FROM (SELECT * FROM run r WHERE r.job = p_job AND r.finished_at IS NOT NULL
                    ORDER BY r.finished_at DESC LIMIT (SELECT sample FROM few)) r) r
        WHERE r.finished_at > r.since
    ), todo AS (
        SELECT sum(c.tasks) AS n FROM counted c WHERE c.state IN ('WAITING', 'QUEUED', 'RUNNING', 'RETRYING')
    ), failed AS (
        SELECT w.data_id, w.sort_key, w.reason,
               CASE WHEN length(w.data_id) >= 4 THEN replace(w.reason, w.data_id, '…') ELSE w.reason END AS kind
        FROM task w
        WHERE w.job = p_job AND w.state = 'FAILED' ORDER BY w.sort_key LIMIT (SELECT sample FROM few)
    ), incomplete AS MATERIALIZED (
        SELECT w.data_id, w.sort_key FROM task w
        WHERE w.job = p_job AND w.incomplete AND w.state = 'DONE' ORDER BY w.sort_key LIMIT (SELECT sample FROM few)
    ), stale AS (
        SELECT w.data_id, w.sort_key FROM task w
        WHERE w.job = p_job AND w.stale AND w.state = 'DONE' LIMIT (SELECT sample FROM few)
    ), waiting AS MATERIALIZED (
        SELECT w.data_id, w.sort_key FROM task w
        WHERE w.job = p_job AND w.state = 'WAITING' ORDER BY w.sort_key LIMIT (SELECT sample FROM few)
    )
    SELECT jsonb_build_object(
        'job', j.id, 'parallelism', j.parallelism, 'suspended', j.suspended, 'deleted', j.deleted,
        'declaring', n.declaring,
        'sample', (SELECT sample FROM few),
        'counts', (SELECT coalesce(jsonb_object_agg(c.state, c.tasks), '{}') FROM counted c),
        'stale', stale_of(p_job),
        'stale_examples', (SELECT coalesce(jsonb_agg(s.data_id ORDER BY s.sort_key), '[]') FROM (
                               SELECT s.data_id, s.sort_key FROM stale s ORDER BY s.sort_key LIMIT 3) s),
        'next_due', (SELECT greatest(0, extract(epoch FROM min(w.due_at) - clock_timestamp()))
                     FROM task w WHERE w.job = p_job AND w.state = 'RETRYING' HAVING count(*) > 0),
        'breaker', describe_breaker(j.id), 'tests', describe_gate(j.id, 'tests'), 'sharing', sharing_refusal(j.id),
        'shared_inputs', shared_inputs(j.id), 'preflight', describe_gate(j.id, 'preflight'), 'missing', missing_locations(j.id),
        'unmanaged_namespaces', (SELECT coalesce(jsonb_agg(jsonb_build_object('namespace', o.namespace, 'jobs', ARRAY[j.id], 'runs', o.own)), '[]')
                                 FROM (SELECT o.*, ARRAY(SELECT r.id FROM runs(o.runs) r WHERE r.job = j.id ORDER BY r.id) AS own FROM unmanaged_namespaces() o) o
                                 WHERE j.id = ANY (o.jobs) OR cardinality(o.own) > 0),
        'limits', (SELECT coalesce(jsonb_agg(x ORDER BY x.host, x.slots), '[]') FROM (
                        SELECT l.host, l.slots, sum(o.parallelism) AS parallelism, count(*) AS jobs
                        FROM lease l JOIN job o ON o.id = ANY (l.jobs)
                        WHERE j.id = ANY (l.jobs) AND l.expires_at > clock_timestamp()
                        GROUP BY l.id HAVING l.slots < sum(o.parallelism)) x),
        'running', (SELECT coalesce(jsonb_agg(x ORDER BY x.run), '[]') FROM (
                        SELECT r.id AS run, r.data_id, r.attempt, round(extract(epoch FROM clock_timestamp() - r.claimed_at)) AS seconds
                        FROM run r WHERE r.job = p_job AND r.state = 'RUNNING' ORDER BY r.id LIMIT 10) x),
        'failed', (SELECT coalesce(jsonb_agg(x ORDER BY x.chunks DESC, x.reason), '[]') FROM (
                        SELECT CASE WHEN min(f.reason) = max(f.reason) THEN min(f.reason) ELSE f.kind END AS reason, count(*) AS chunks,
                               (array_agg(f.data_id ORDER BY f.sort_key))[1:3] AS examples
                        FROM failed f GROUP BY f.kind ORDER BY count(*) DESC, f.kind LIMIT 10) g
                        CROSS JOIN LATERAL (SELECT g.*, (SELECT r.failure_class FROM task_of(p_job, g.examples[1]) w, run r
                                                         WHERE r.id = w.run) AS class) x),
        'waiting', (SELECT coalesce(jsonb_agg(x ORDER BY x.chunks DESC), '[]') FROM (
                        SELECT b.dataset, b.itemtype, b.status, count(*) AS chunks,
                               (array_agg(w.data_id ORDER BY w.sort_key))[1:3] AS examples
                        FROM waiting w
                        CROSS JOIN LATERAL (SELECT * FROM blocker b WHERE b.job = p_job AND b.data_id = w.data_id OFFSET 0) b
                        GROUP BY 1, 2, 3 ORDER BY count(*) DESC LIMIT 10) x),
        'incomplete', (SELECT coalesce(jsonb_agg(x ORDER BY x.dataset), '[]') FROM (
                        SELECT m AS dataset, count(*) AS chunks, (array_agg(w.data_id ORDER BY w.sort_key))[1:3] AS examples
                        FROM incomplete w CROSS JOIN LATERAL missing_outputs(p_job, w.data_id) AS m
                        GROUP BY m) x),
        'gaps', (SELECT count(*) FROM gap),
        'gap_examples', (SELECT coalesce(jsonb_agg(g.data_id ORDER BY g.sort_key), '[]') FROM (SELECT * FROM gap ORDER BY sort_key LIMIT 5) g),
        'watermark', (SELECT w.data_id FROM (SELECT * FROM edge WHERE n.declaring IS NULL) e
                      CROSS JOIN LATERAL (SELECT w.data_id FROM task w
                                          WHERE w.job = p_job AND w.state = 'DONE' AND w.sort_key < coalesce(e.first_open, e.last_done || '\x00')
                                          ORDER BY w.sort_key DESC LIMIT 1) w),
        'per_minute', (SELECT CASE WHEN r.n > 0 THEN round((r.n * 60 / r.seconds)::numeric, 2) END FROM recent r),
        'eta_seconds', (SELECT CASE WHEN r.n > 0 AND t.n > 0 THEN round(t.n * r.seconds / r.n) END FROM recent r, todo t WHERE n.declaring IS NULL))
    FROM job j, LATERAL (SELECT declaring_of_job(j.id) AS declaring OFFSET 0) n WHERE j.id = p_job
$$;

-- Return all task states except DONE.
CREATE FUNCTION opendataflow.unfinished_states() RETURNS text[]
LANGUAGE sql IMMUTABLE AS $$ SELECT '{WAITING,QUEUED,RUNNING,RETRYING,FAILED,HELD,SKIPPED}'::text[] $$;

-- Return why a task is not running: its state, its blockers with evidence, and the limits of its job.
-- `before_it`: the number of tasks ahead; 10000 means that many or more.
CREATE FUNCTION opendataflow.why(p_job text, p_data_id text) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = opendataflow, pg_temp AS $$
    SELECT jsonb_build_object(
        'job', w.job, 'data_id', w.data_id, 'state', w.state, 'reason', w.reason, 'held_from', w.held_from, 'again', w.again,
        'forced', w.forced, 'stale', w.stale, 'missing_outputs', CASE WHEN w.incomplete THEN ARRAY(SELECT missing_outputs(w.job, w.data_id)) ELSE '{}' END, 'attempts', w.attempts, 'infrastructure_attempts', w.infrastructure_attempts,
        'retry_limit', j.retry_limit, 'due_at', w.due_at,
        'due_in_seconds', CASE WHEN w.due_at IS NOT NULL THEN greatest(0, round(extract(epoch FROM w.due_at - clock_timestamp()))) END,
        'suspended', j.suspended, 'deleted', j.deleted, 'parallelism', j.parallelism, 'breaker', describe_breaker(j.id),
        'tests', describe_gate(w.job, 'tests'), 'preflight', describe_gate(w.job, 'preflight'), 'looks', w.looks, 'sharing', sharing_refusal(j.id),
        'running', (SELECT count(*) FROM task x WHERE x.job = w.job AND x.state = 'RUNNING'),
        'before_it', (SELECT count(*) FROM (SELECT FROM task x WHERE x.job = w.job AND x.state = 'QUEUED'
                                            AND (x.rank, x.sort_key) < (w.rank, w.sort_key) LIMIT 10000) x),
        'engines', (SELECT count(*) FROM lease l WHERE l.expires_at > clock_timestamp()),
        'blockers', (SELECT coalesce(jsonb_agg(to_jsonb(b) || jsonb_build_object(
                            'producer', p.job, 'producer_state', p.state, 'producer_reason', p.reason) ORDER BY b.itemtype, b.dataset), '[]')
                     FROM blocker b
                     LEFT JOIN LATERAL (SELECT o.job, pw.state, pw.reason FROM job_output o
                                        LEFT JOIN task pw ON pw.job = o.job AND pw.data_id = b.data_id
                                        WHERE o.dataset = b.dataset) p ON b.itemtype = 'IN'
                     WHERE b.job = w.job AND b.data_id = w.data_id AND w.state IN ('WAITING', 'QUEUED', 'RETRYING')),
        'engine_lives', EXISTS (SELECT FROM run r JOIN lease l ON l.id = r.lease
                                WHERE r.id = w.run AND l.expires_at > clock_timestamp()),
        'unmanaged_namespaces', (SELECT jsonb_build_object('namespace', o.namespace, 'jobs', '[]'::jsonb, 'runs', ARRAY[w.run])
                                 FROM unmanaged_namespaces() o WHERE w.state = 'RUNNING' AND w.run = ANY (o.runs)),
        'orphan', (SELECT to_jsonb(o) FROM orphans_of(w.job) o WHERE o.data_id = w.data_id ORDER BY o.since, o.uid LIMIT 1),
        'last_run', (SELECT to_jsonb(r) FROM list_runs(w.job, w.data_id, 1) r),
        'own_jvm', (SELECT r.metrics ->> 'own_jvm' FROM run_of(w.run) r))
    FROM task w JOIN job j ON j.id = w.job
    WHERE w.job = p_job AND w.data_id = p_data_id
$$;

-- Return ids of a job's tasks or of a data set's chunks, to suggest an id that the user may have meant.
CREATE FUNCTION opendataflow.known_ids(p_owner text, p_limit integer) RETURNS SETOF text
LANGUAGE sql STABLE AS $$
    SELECT k.data_id
    FROM ((SELECT t.data_id FROM opendataflow.task t WHERE t.job = p_owner LIMIT p_limit)
          UNION
          (SELECT c.data_id FROM opendataflow.chunk c WHERE c.dataset = p_owner LIMIT p_limit) LIMIT p_limit) k
    ORDER BY opendataflow.sort_key(k.data_id)
$$;
