-- Completion of runs. The outcome is committed before the engine deletes anything of the run.

-- Commit the outcomes of runs in one transaction. p_outcomes is a list of
--   {run, fence, verdict: DONE | RETRYING | FAILED, state: SUCCEEDED | FAILED | LOST | CANCELLED, class, delay (seconds,
--    for RETRYING), exit_code, message, reason (of the task, default: message), log_tail, log_path, pod_uid, node,
--    metrics: {rows, bytes, checksum, …}, steps: [{ordinal, name, status, rows, seconds, error, stdout}]}
-- A run of class NotStarted costs no attempt. If only the location of its chunk was missing (metrics.preflight is `chunk`),
-- the task is retried after the pause of the job's backoff for `looks`, whatever the delay, and after all other tasks.
-- Success sets all outputs to READY at once. Failure sets them to FAILED and the task to RETRYING or FAILED.
-- A remembered resubmit reopens the task, whatever the verdict: its outputs become RESUBMIT, never READY in between.
-- A run with cancel_requested is not retried, even if its engine was lost before it cancelled the run.
-- Failures under an open breaker become RETRYING at once, whatever the verdict: the breaker's pause applies.
-- A run that has ended, or whose fencing token is older, changes nothing. Its row has `already` and the run's state.
-- A caller that lost the first result can therefore read it again. `woken`: the jobs that have newly QUEUED tasks.
-- p_lease: the lease that must own the runs. Runs that another operator has taken over are not changed.
-- `spared`: the failure cost no attempt. `breaker`: a report if the run opened or closed the breaker (update_breakers).
-- Locks levels 0, 2 (unless all succeeded), 3, 4, 5. Raises a serialization failure if a job was changed meanwhile.
CREATE FUNCTION opendataflow.complete(p_outcomes jsonb, p_actor text, p_lease uuid DEFAULT NULL)
RETURNS TABLE (run bigint, run_state text, task_state text, already boolean, woken text[], spared boolean, breaker jsonb)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_runs       bigint[];  -- the given runs
    v_ended      bigint[];  -- the runs that this call ends
    v_again      boolean;   -- whether one of their tasks has a remembered resubmit
    v_unfinished boolean;   -- whether one of their tasks is not DONE
    v_relinked   boolean;   -- whether a job was applied with other outputs since the claim
    v_datasets   text[];
    v_ids        text[];
    v_jobs       text[];
    v_task_ids   text[];
    v_queued     text[];
    v_spared     bigint[];  -- the runs whose failure costs no attempt
    v_notes      jsonb;     -- reports about breakers
    v_retired    boolean;   -- whether a chunk of them was retired meanwhile
    v_stale      boolean;   -- whether a job got other inputs meanwhile, or a task other bounds
BEGIN
    PERFORM begin_event('complete', p_actor);
    SELECT array_agg(o.run) INTO v_runs FROM jsonb_to_recordset(p_outcomes) AS o(run bigint);
    SELECT array_agg(t.dataset), array_agg(t.data_id) INTO v_datasets, v_ids FROM chunks_of_runs(v_runs) t;
    PERFORM lock_datasets(v_datasets);
    PERFORM lock_jobs(ARRAY(SELECT r.job FROM jsonb_to_recordset(p_outcomes) AS o(run bigint, verdict text), run_of(o.run) AS r
                            WHERE o.verdict <> 'DONE'));  -- a claim must wait for a breaker that may open now
    SELECT coalesce(bool_or(r.writes <> ARRAY(SELECT o.dataset FROM job_output o WHERE o.job = r.job ORDER BY 1)), false)
    INTO v_relinked FROM runs(v_runs) r;
    IF v_relinked AND EXISTS (SELECT FROM chunks_of_runs(v_runs) t WHERE t.dataset <> ALL (v_datasets)) THEN
        RAISE EXCEPTION 'a job of these runs was changed at this moment: try again' USING ERRCODE = 'serialization_failure';
    END IF;
    SELECT array_agg(x.job), array_agg(x.data_id) INTO v_jobs, v_task_ids
    FROM (SELECT r.job, r.data_id FROM runs(v_runs) r
          UNION ALL SELECT a.job, a.data_id FROM affected_tasks(v_datasets, v_ids) a
          UNION ALL SELECT f.job, f.data_id FROM tasks_to_refund(v_runs) f) x;
    PERFORM lock_chunks(v_datasets, v_ids), lock_tasks(v_jobs, v_task_ids), lock_runs(v_runs);

    WITH ended AS (
        UPDATE run r
        SET state = CASE WHEN r.cancel_requested AND o.state <> 'SUCCEEDED' THEN 'CANCELLED' ELSE o.state END, finished_at = clock_timestamp(),
            failure_class = nullif(o.class, 'Success'), exit_code = o.exit_code, message = o.message,
            log_tail = o.log_tail, log_path = o.log_path, pod_uid = o.pod_uid, node = o.node, metrics = o.metrics
        FROM jsonb_to_recordset(p_outcomes)
             AS o(run bigint, fence bigint, verdict text, state text, class text, exit_code integer, message text,
                  log_tail text, log_path text, pod_uid text, node text, metrics jsonb), run_of(o.run) AS was
        WHERE r.ctid = was.at AND was.fence = o.fence AND was.state = 'RUNNING' AND (p_lease IS NULL OR was.lease = p_lease)
        RETURNING r.id, r.job, r.data_id, o.verdict
    )
    SELECT coalesce(array_agg(e.id), '{}'), coalesce(bool_or(e.verdict <> 'DONE'), false),
           coalesce(bool_or(w.again), false), coalesce(bool_or(w.stale), false)
    INTO v_ended, v_unfinished, v_again, v_stale FROM ended e LEFT JOIN LATERAL (
        SELECT * FROM task_of(e.job, e.data_id) w WHERE w.run = e.id) w ON true;
    PERFORM record_steps(v_ended, p_outcomes);
    IF v_unfinished OR EXISTS (SELECT FROM breaker b WHERE b.job = ANY (v_jobs)) THEN
        SELECT j.spared, j.notes INTO v_spared, v_notes
        FROM update_breakers(ARRAY(SELECT n FROM unnest(v_runs) AS n WHERE n = ANY (v_ended)), v_jobs, v_task_ids) j;
    END IF;
    v_retired := apply_outcomes_to_chunks(v_ended);
    IF v_again THEN
        PERFORM reopen(n.job, n.ids, 'resubmitted while it was running')
        FROM (SELECT w.job, array_agg(w.data_id) AS ids FROM runs(v_ended) r CROSS JOIN task_of(r.job, r.data_id) AS w
              WHERE w.run = r.id AND w.again GROUP BY w.job ORDER BY w.job) AS n;
    END IF;
    PERFORM apply_outcomes_to_tasks(v_ended, v_spared, p_outcomes);
    IF EXISTS (SELECT FROM jsonb_array_elements(p_outcomes) AS o WHERE o.value -> 'metrics' ?| '{tests,preflight}') THEN
        PERFORM record_gates(v_ended);
    END IF;
    IF v_again OR v_unfinished THEN  -- a later apply may have removed the ids of open tasks
        PERFORM delete_out_of_scope(array_agg(r.job), array_agg(r.data_id)) FROM runs(v_ended) r;
    END IF;
    IF v_retired OR v_relinked OR v_stale THEN
        PERFORM retire_tasks(array_agg(r.job), array_agg(r.data_id)) FROM runs(v_ended) r WHERE NOT has_source(r.job, r.data_id);
    END IF;
    IF v_relinked THEN  -- a READY chunk may have another producer
        PERFORM finish_published(v_jobs, v_task_ids), mark_incomplete(v_jobs, v_task_ids);
    END IF;
    PERFORM mark_consumers_stale(v_ended);
    v_queued := recount_blockers(v_jobs, v_task_ids);
    RETURN QUERY
    SELECT r.id, r.state, coalesce(w.state, 'FAILED'), r.id <> ALL (v_ended), v_queued, coalesce(r.id = ANY (v_spared), false), v_notes -> r.id::text
    FROM runs(v_runs) r LEFT JOIN task_of(r.job, r.data_id) AS w ON true;
END $$;

-- Store the reported steps of runs that were ended by this call.
CREATE FUNCTION opendataflow.record_steps(p_runs bigint[], p_outcomes jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT p_outcomes @? '$[*].steps' THEN
        RETURN;
    END IF;
    INSERT INTO step (run, ordinal, name, status, rows, seconds, error, stdout)
    SELECT o.run, s.ordinal, s.name, s.status, s.rows, s.seconds, s.error, s.stdout
    FROM jsonb_to_recordset(p_outcomes) AS o(run bigint, steps jsonb)
    CROSS JOIN LATERAL jsonb_populate_recordset(NULL::step, o.steps) AS s
    WHERE o.run = ANY (p_runs);
END $$;

-- Return the chunks that completion can change: the chunks that the runs locked, and the present outputs of their jobs.
-- The locks of a run never change after its claim. The result may contain duplicates.
CREATE FUNCTION opendataflow.chunks_of_runs(p_runs bigint[]) RETURNS TABLE (dataset text, data_id text)
LANGUAGE sql STABLE AS $$
    SELECT d, r.data_id
    FROM opendataflow.runs(p_runs) r,
         unnest(r.reads || r.writes || ARRAY(SELECT o.dataset FROM opendataflow.job_output o
                                             WHERE o.job = r.job AND o.dataset <> ALL (r.writes))) AS d
$$;

-- Update the chunks that ended runs wrote or read. One statement writes each row once.
-- A written chunk whose id was withdrawn meanwhile is retired now. Return whether a chunk is retired.
CREATE FUNCTION opendataflow.apply_outcomes_to_chunks(p_runs bigint[]) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_retired boolean;
BEGIN
    WITH ended AS (
    UPDATE chunk c
    SET status = CASE WHEN n.status IS NOT NULL AND c.retired_from IS NOT NULL THEN 'RETIRED' ELSE coalesce(n.status, c.status) END,
        retired_from = CASE WHEN c.retired_from IS NOT NULL THEN coalesce(n.status, c.retired_from) END,
        published_at = CASE WHEN n.status = 'READY' THEN clock_timestamp() ELSE c.published_at END,
        reason = CASE WHEN n.status IS NULL THEN c.reason ELSE n.reason END,
        readers = c.readers - n.readers,
        rows = CASE WHEN n.status = 'READY' THEN (n.metrics ->> 'rows')::bigint ELSE c.rows END,
        bytes = CASE WHEN n.status = 'READY' THEN (n.metrics ->> 'bytes')::bigint ELSE c.bytes END,
        checksum = CASE WHEN n.status = 'READY' THEN n.metrics ->> 'checksum' ELSE c.checksum END
    FROM (SELECT d.dataset, r.data_id, count(*) FILTER (WHERE NOT d.writes) AS readers,
                 (array_agg(r.metrics) FILTER (WHERE d.writes))[1] AS metrics,
                 min(CASE WHEN NOT d.writes THEN NULL WHEN t.again THEN 'RESUBMIT' WHEN r.state = 'SUCCEEDED' THEN 'READY' ELSE 'FAILED' END) AS status,
                 min(CASE WHEN t.again THEN 'resubmitted while it was running' WHEN r.state <> 'SUCCEEDED' THEN r.message END) AS reason
          FROM runs(p_runs) r CROSS JOIN task_of(r.job, r.data_id) AS t
          CROSS JOIN LATERAL (SELECT i AS dataset, false AS writes FROM unnest(r.reads) AS i
                              UNION ALL SELECT o, true FROM unnest(r.writes) AS o) AS d
          GROUP BY d.dataset, r.data_id) n
    CROSS JOIN chunk_of(n.dataset, n.data_id) AS was
    WHERE c.ctid = was.at
    RETURNING c.retired_from
    ) SELECT coalesce(bool_or(e.retired_from IS NOT NULL), false) INTO v_retired FROM ended e;
    RETURN v_retired;
END $$;

-- Update the tasks of ended runs. p_spared: the runs whose failure costs no attempt.
CREATE FUNCTION opendataflow.apply_outcomes_to_tasks(p_runs bigint[], p_spared bigint[], p_outcomes jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE task t
    SET state = v.verdict,
        rank = CASE WHEN o.class = 'NotStarted' AND v.verdict = 'RETRYING' THEN CASE WHEN v.looked AND t.rank > 0 THEN 3 ELSE t.rank END
                    WHEN v.verdict = 'RETRYING' AND NOT v.spared THEN least(t.rank, 2) ELSE 2 END,
        looks = CASE WHEN o.class = 'NotStarted' AND v.verdict = 'RETRYING' THEN t.looks + v.looked::integer ELSE 0 END,
        attempts = t.attempts + (o.verdict <> 'DONE' AND o.class NOT IN ('Infrastructure', 'NotStarted') AND NOT v.spared)::integer,
        infrastructure_attempts = t.infrastructure_attempts + (o.verdict <> 'DONE' AND o.class = 'Infrastructure' AND NOT v.spared)::integer,
        due_at = CASE WHEN v.spared THEN clock_timestamp()
                      WHEN v.looked THEN clock_timestamp() + probe_pause(t.job, t.looks)
                      WHEN v.verdict = 'RETRYING' THEN clock_timestamp() + make_interval(secs => o.delay) END,
        reason = CASE WHEN v.spared THEN 'costs no attempt, as the breaker of the job is open: ' || o.message
                      WHEN v.verdict <> o.verdict THEN 'cancelled; ' || o.message
                      WHEN v.verdict <> 'DONE' THEN coalesce(o.reason, o.message) END,
        stale = t.stale AND o.verdict = 'DONE', bounds_changed = t.bounds_changed AND o.verdict = 'DONE', forced = t.forced AND v.verdict = 'RETRYING' AND NOT v.spared
    FROM jsonb_to_recordset(p_outcomes)
         AS o(run bigint, verdict text, class text, delay double precision, message text, reason text, metrics jsonb)
    CROSS JOIN run_of(o.run) AS r
    CROSS JOIN task_of(r.job, r.data_id) AS was
    CROSS JOIN LATERAL (SELECT coalesce(o.run = ANY (p_spared), false) AND o.class IS DISTINCT FROM 'NotStarted' AS spared,
                               coalesce(o.class = 'NotStarted' AND o.metrics ->> 'preflight' = 'chunk', false) AS looked,
                               CASE WHEN o.run = ANY (p_spared) THEN 'RETRYING'
                                    WHEN o.verdict = 'DONE' OR (o.verdict = 'RETRYING' AND NOT r.cancel_requested)
                                    THEN o.verdict ELSE 'FAILED' END AS verdict) v
    WHERE t.ctid = was.at AND was.run = r.id AND was.state = 'RUNNING' AND o.run = ANY (p_runs);
END $$;

-- Mark consumers of newly written chunks stale. Also mark a completed task stale if an input was published meanwhile.
CREATE FUNCTION opendataflow.mark_consumers_stale(p_runs bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_datasets text[];
    v_ids      text[];
BEGIN
    SELECT array_agg(x.dataset), array_agg(x.data_id) INTO v_datasets, v_ids
    FROM runs(p_runs) r
    CROSS JOIN LATERAL (
        SELECT o AS dataset, r.data_id FROM unnest(r.writes) AS o
        UNION ALL
        SELECT i.dataset, r.data_id FROM unnest(r.reads, r.read_fences) AS i(dataset, fence)
        WHERE i.fence <> (SELECT c.fence FROM chunk_of(i.dataset, r.data_id) c)) x
    WHERE r.state = 'SUCCEEDED';
    PERFORM mark_stale(v_datasets, v_ids);
END $$;

-- Open RETRYING tasks whose backoff is over, and return the jobs that have newly QUEUED tasks (`woken`).
-- Also compact the counts, because engines call this function once a second. Locks level 4.
CREATE FUNCTION opendataflow.retry_due(p_limit integer DEFAULT 1000, OUT woken text[])
LANGUAGE plpgsql AS $$
DECLARE
    v_jobs text[];
    v_ids  text[];
BEGIN
    PERFORM begin_event('retry due', 'engine'), compact_counts();
    SELECT array_agg(d.job), array_agg(d.data_id) INTO v_jobs, v_ids
    FROM (SELECT t.job, t.data_id FROM task t WHERE t.state = 'RETRYING' AND t.due_at <= clock_timestamp()
          ORDER BY t.due_at LIMIT p_limit) AS d;
    IF v_jobs IS NOT NULL THEN
        PERFORM lock_tasks(v_jobs, v_ids);
        UPDATE task t SET state = 'WAITING', blockers = greatest(t.blockers, 1), due_at = NULL
        FROM unnest(v_jobs, v_ids) AS p(job, data_id), task_of(p.job, p.data_id) AS was
        WHERE t.ctid = was.at AND was.state = 'RETRYING' AND was.due_at <= clock_timestamp();
        woken := recount_blockers(v_jobs, v_ids);
    END IF;
    woken := coalesce(woken, '{}');
END $$;
