-- The breaker of a job. It opens if several different chunks fail in a row with no success in between.
-- The cause is then probably not in the chunks. While the breaker is open, one run at a time, the probe, tests the job.
-- Failures cost no attempts meanwhile. The first success closes the breaker.

-- Return the number of failed chunks in a row that opens a breaker.
CREATE FUNCTION opendataflow.breaker_threshold() RETURNS integer
LANGUAGE sql IMMUTABLE AS $$ SELECT 5 $$;

-- Return the pause before the next probe, after p_probes failed probes: the job's own backoff.
CREATE FUNCTION opendataflow.probe_pause(p_job text, p_probes integer) RETURNS interval
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT make_interval(secs => CASE
                WHEN j.backoff_initial = 0 OR j.backoff_maximum = 0 THEN 0
                WHEN p_probes * ln(j.backoff_factor) >= ln(j.backoff_maximum) - ln(j.backoff_initial) THEN j.backoff_maximum
                ELSE j.backoff_initial * j.backoff_factor ^ p_probes END)
            FROM job j WHERE j.id = p_job);
END $$;

-- Return how many tasks a job with an open breaker may claim now (`free`, 0 or 1), and the position to search after.
-- A forced task ignores the pause. Other chunks take turns, after the chunk that was tried last.
-- A chunk that always fails can therefore not keep the breaker open.
CREATE FUNCTION opendataflow.probe_position(p_breaker opendataflow.breaker, p_data_id text,
                                            OUT free integer, OUT rank integer, OUT key bytea)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
    v_tried bytea;
BEGIN
    free := 0; rank := -1; key := '';
    IF p_breaker.probe IS NOT NULL THEN
        RETURN;
    END IF;
    free := (p_breaker.next_probe_at <= clock_timestamp()
             OR EXISTS (SELECT FROM task t WHERE t.job = p_breaker.job AND t.state = 'QUEUED' AND t.rank = 0
                                             AND (p_data_id IS NULL OR t.data_id = p_data_id)))::integer;
    v_tried := (SELECT sort_key(p_breaker.tried, j.descending) FROM job j WHERE j.id = p_breaker.job);
    IF p_data_id IS NULL
       AND NOT EXISTS (SELECT FROM task t WHERE t.job = p_breaker.job AND t.state = 'QUEUED' AND t.rank < 2)
       AND EXISTS (SELECT FROM task t WHERE t.job = p_breaker.job AND t.state = 'QUEUED' AND (t.rank, t.sort_key) > (2::smallint, v_tried))
    THEN
        rank := 2; key := v_tried;
    END IF;
END $$;

-- Record a run that was claimed under an open breaker as its probe. No effect if the breaker has closed.
CREATE FUNCTION opendataflow.begin_probe(p_job text, p_run bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE breaker b SET probe = p_run, tried = (SELECT r.data_id FROM run r WHERE r.id = p_run)
    WHERE b.job = p_job AND b.opened_at IS NOT NULL;
END $$;

-- Return the tasks whose attempts are refunded if one of the runs opens the breaker of its job.
CREATE FUNCTION opendataflow.tasks_to_refund(p_runs bigint[]) RETURNS TABLE (job text, data_id text)
LANGUAGE sql STABLE ROWS 5 AS $$
    SELECT b.job, f FROM (SELECT DISTINCT r.job FROM opendataflow.runs(p_runs) r WHERE EXISTS (SELECT FROM opendataflow.breaker)) r
    CROSS JOIN LATERAL (SELECT b.job, b.failed FROM opendataflow.breaker b WHERE b.job = r.job AND b.opened_at IS NULL OFFSET 0) b
    CROSS JOIN LATERAL unnest(b.failed) AS f
$$;

-- Apply ended runs to the breakers of their jobs, in the order of p_runs.
-- `spared`: the runs whose failure costs no attempt. `notes`: reports by run id,
-- {opened: true, chunks, message, pause} or {opened: false, seconds, probes}.
-- A failure counts only if the run itself FAILED. CANCELLED and LOST runs do not count.
-- The caller holds the row locks of the tasks p_jobs/p_ids, which include tasks_to_refund(). Locks breakers (level 5).
CREATE FUNCTION opendataflow.update_breakers(p_runs bigint[], p_jobs text[], p_ids text[], OUT spared bigint[], OUT notes jsonb)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_job       text;
    v_old       breaker;
    b           breaker;
    v_run       record;
    v_first_end timestamptz := (SELECT min(r.finished_at) FROM runs(p_runs) r);
BEGIN
    spared := '{}'; notes := '{}';
    FOR v_job IN
        SELECT r.job
        FROM (SELECT r.job, bool_or(r.state = 'FAILED') AS failed, array_agg(r.data_id) AS ids
              FROM runs(p_runs) r GROUP BY r.job) r
        WHERE r.failed OR EXISTS (SELECT FROM breaker b WHERE b.job = r.job AND (b.since IS NOT NULL OR b.forgiven && r.ids))
        ORDER BY r.job
    LOOP
        INSERT INTO breaker AS x (job) VALUES (v_job) ON CONFLICT (job) DO UPDATE SET job = x.job RETURNING x.* INTO v_old;
        b := v_old;
        FOR v_run IN
            SELECT r.id, r.data_id, r.state, r.message, t.attempts + t.infrastructure_attempts + 1 < r.attempt AS given_back
            FROM unnest(p_runs) WITH ORDINALITY AS n(id, place)
            CROSS JOIN run_of(n.id) r LEFT JOIN task_of(r.job, r.data_id) AS t ON t.run = r.id
            WHERE r.job = v_job ORDER BY n.place
        LOOP
            IF v_run.state = 'SUCCEEDED' THEN
                IF b.opened_at IS NOT NULL THEN
                    notes := notes || jsonb_build_object(v_run.id, jsonb_build_object('opened', false, 'probes', b.probes,
                        'seconds', extract(epoch FROM clock_timestamp() - b.opened_at)));
                END IF;
                b := ROW (v_job, '{}', '{}', NULL, NULL, array_remove(b.forgiven, v_run.data_id), NULL, 0, NULL, NULL, NULL);
            ELSIF b.opened_at IS NOT NULL THEN
                b := record_failure_while_open(b, v_run.id, v_run.state, v_run.message);
                IF v_run.state <> 'CANCELLED' THEN
                    spared := spared || v_run.id;
                END IF;
            ELSIF v_run.state = 'FAILED' THEN
                b := record_failure(b, v_run.id, v_run.data_id, v_run.message, v_first_end);
                IF v_run.given_back THEN   -- the breaker was open while the run was active
                    spared := spared || v_run.id;
                END IF;
                IF b.opened_at IS NOT NULL THEN
                    spared := spared || refund_attempts(b, p_runs, p_jobs, p_ids);
                    b.forgiven := b.failed;
                    notes := notes || jsonb_build_object(v_run.id, jsonb_build_object('opened', true,
                        'chunks', cardinality(b.failed), 'message', b.message, 'pause', extract(epoch FROM b.next_probe_at - b.opened_at)));
                END IF;
            END IF;
        END LOOP;
        IF b.since IS NULL AND b.forgiven = '{}' THEN
            DELETE FROM breaker x WHERE x.job = v_job;
        ELSIF b IS DISTINCT FROM v_old THEN
            UPDATE breaker x
            SET (failed, runs, since, message, forgiven, opened_at, probes, next_probe_at, probe, tried)
              = (b.failed, b.runs, b.since, b.message, b.forgiven, b.opened_at, b.probes, b.next_probe_at, b.probe, b.tried)
            WHERE x.job = v_job;
        END IF;
    END LOOP;
END $$;

-- Return an open breaker after a run that did not succeed. Only a failed probe extends the pause.
-- Runs that were claimed before the breaker opened give no new information.
CREATE FUNCTION opendataflow.record_failure_while_open(b opendataflow.breaker, p_run bigint, p_state text, p_message text)
RETURNS opendataflow.breaker
LANGUAGE plpgsql AS $$
BEGIN
    IF p_state = 'FAILED' THEN
        b.message := p_message;
        IF p_run = b.probe THEN
            b.probes := b.probes + 1;
            b.next_probe_at := clock_timestamp() + probe_pause(b.job, b.probes);
        END IF;
    END IF;
    b.probe := nullif(b.probe, p_run);
    RETURN b;
END $$;

-- Return a closed breaker after one more failure. A chunk that fails again replaces its earlier entry.
-- The breaker opens at the threshold.
CREATE FUNCTION opendataflow.record_failure(b opendataflow.breaker, p_run bigint, p_data_id text, p_message text,
                                            p_finished timestamptz)
RETURNS opendataflow.breaker
LANGUAGE plpgsql AS $$
BEGIN
    b.runs := array_remove(b.runs, b.runs[array_position(b.failed, p_data_id)]) || p_run;
    b.failed := array_remove(b.failed, p_data_id) || p_data_id;
    b.since := coalesce(b.since, p_finished);
    b.message := p_message;
    IF cardinality(b.failed) >= breaker_threshold() THEN
        b.opened_at := clock_timestamp();
        b.next_probe_at := b.opened_at + probe_pause(b.job, 0);
        b.tried := p_data_id;
    END IF;
    RETURN b;
END $$;

-- Refund the attempts of the failures that opened the breaker, and set its FAILED tasks to RETRYING.
-- A chunk is not refunded twice in a row, because the chunk itself is then the cause.
-- Return the runs of p_runs that cost no attempt.
-- Raise a serialization failure if the caller does not hold the locks of all these tasks.
CREATE FUNCTION opendataflow.refund_attempts(b opendataflow.breaker, p_runs bigint[], p_jobs text[], p_ids text[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM unnest(b.failed) AS f
               WHERE NOT EXISTS (SELECT FROM unnest(p_jobs, p_ids) AS l(job, data_id) WHERE l.job = b.job AND l.data_id = f)) THEN
        RAISE EXCEPTION 'runs of job % ended at this moment: try again', b.job USING ERRCODE = 'serialization_failure';
    END IF;
    UPDATE task t
    SET attempts = greatest(t.attempts - n.application, 0),
        infrastructure_attempts = greatest(t.infrastructure_attempts - n.infrastructure, 0),
        state = CASE WHEN t.run = f.run AND t.state IN ('RETRYING', 'FAILED') THEN 'RETRYING' ELSE t.state END,
        due_at = CASE WHEN t.run = f.run AND t.state IN ('RETRYING', 'FAILED') THEN clock_timestamp() ELSE t.due_at END,
        rank = CASE WHEN t.run = f.run AND t.state IN ('RETRYING', 'FAILED') THEN 2 ELSE t.rank END,
        forced = t.forced AND (t.run = f.run AND t.state IN ('RETRYING', 'FAILED')) IS NOT TRUE,
        reason = CASE WHEN t.run = f.run AND t.state IN ('RETRYING', 'FAILED')
                      THEN 'the breaker of the job has opened: the attempt is given back' ELSE t.reason END
    FROM unnest(b.failed, b.runs) AS f(data_id, run)
    CROSS JOIN task_of(b.job, f.data_id) AS was
    CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE r.failure_class IS DISTINCT FROM 'Infrastructure')::integer AS application,
                               count(*) FILTER (WHERE r.failure_class = 'Infrastructure')::integer AS infrastructure
                        FROM runs_of(b.job, f.data_id) r
                        WHERE r.state = 'FAILED'
                                     AND r.finished_at >= b.since AND r.id <> ALL (p_runs)) n
    WHERE t.ctid = was.at AND f.data_id <> ALL (b.forgiven);
    RETURN ARRAY(SELECT f.run FROM unnest(b.failed, b.runs) AS f(data_id, run)
                 WHERE f.run = ANY (p_runs) AND f.data_id <> ALL (b.forgiven));
END $$;

-- Return the details of an open breaker for reports; null if the breaker is closed.
CREATE FUNCTION opendataflow.describe_breaker(p_job text) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'opened_at', b.opened_at, 'seconds', round(extract(epoch FROM clock_timestamp() - b.opened_at)),
        'chunks', cardinality(b.failed), 'message', b.message, 'probes', b.probes, 'probe', b.probe,
        'next_probe_at', b.next_probe_at,
        'next_in_seconds', greatest(0, round(extract(epoch FROM b.next_probe_at - clock_timestamp()))))
    FROM opendataflow.breaker b WHERE b.job = p_job AND b.opened_at IS NOT NULL
$$;
