-- Gates: what must hold before the runs of a job start. While it does not hold, one run at a time looks again.
-- Kind `tests`: the unit tests of the project pass. Kind `preflight`: the locations that all chunks need can be reached.
-- Runs report what they found. A location of one chunk is no gate: it delays only the task of this chunk (task.looks).

-- Return how many tasks of a job may be claimed now according to its gates; null for no limit.
-- If a gate is closed, one run at a time looks again, with the pauses of the job's backoff.
CREATE FUNCTION opendataflow.claim_limit_by_gates(p_job text) RETURNS integer
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN max(g.next_look_at) > clock_timestamp()
                     OR EXISTS (SELECT FROM opendataflow.task w WHERE w.job = p_job AND w.state = 'RUNNING') THEN 0 ELSE 1 END
    FROM opendataflow.gate g WHERE g.job = p_job AND g.failed IS NOT NULL AND g.passed IS NULL
    HAVING count(*) > 0
$$;

-- Return a gate of a job as JSON for reports; null if the job has no gate of this kind.
CREATE FUNCTION opendataflow.describe_gate(p_job text, p_kind text) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT to_jsonb(g) || jsonb_build_object(
        'next_in_seconds', greatest(0, round(extract(epoch FROM g.next_look_at - clock_timestamp()))))
    FROM opendataflow.gate g WHERE g.job = p_job AND g.kind = p_kind
$$;

-- Store which tests the applied jobs require. Clear earlier failures, because the change may have fixed them.
CREATE FUNCTION opendataflow.put_tests(p_jobs jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM gate g USING jsonb_to_recordset(p_jobs) AS n(id text, tests text)
    WHERE g.job = n.id AND g.kind = 'tests' AND g.subject IS DISTINCT FROM n.tests;
    INSERT INTO gate (job, kind, subject)
    SELECT n.id, 'tests', n.tests FROM jsonb_to_recordset(p_jobs) AS n(id text, tests text) WHERE n.tests IS NOT NULL ORDER BY n.id
    ON CONFLICT DO NOTHING;
    PERFORM clear_gates(n.value ->> 'id') FROM jsonb_array_elements(p_jobs) AS n ORDER BY n.value ->> 'id';
END $$;

-- Open the gates of a job, so that its next runs look again at once.
CREATE FUNCTION opendataflow.clear_gates(p_job text) RETURNS void
LANGUAGE sql AS $$
    SELECT opendataflow.clear_gate(p_job, g.kind) FROM opendataflow.gate g WHERE g.job = p_job ORDER BY g.kind;
$$;

-- Open one gate of a job. A gate of kind `preflight` exists only while it is closed.
CREATE FUNCTION opendataflow.clear_gate(p_job text, p_kind text) RETURNS void
LANGUAGE sql AS $$
    UPDATE opendataflow.gate g SET (failed, failure, failing_since, next_look_at, looks) = (NULL, NULL, NULL, NULL, 0)
    WHERE g.job = p_job AND g.kind = p_kind AND g.failed IS NOT NULL;
    DELETE FROM opendataflow.gate g WHERE g.job = p_job AND g.kind = p_kind AND g.kind = 'preflight';
$$;

-- Record what ended runs found at the gates of their jobs.
-- metrics.tests is {subject, commit, passed, gone}. `gone`: the commit that passed before and can't be used any more.
-- metrics.preflight is `passed`, `chunk` (only the location of this chunk is missing) or `job`.
-- Of two runs the later one counts, even if it ends first.
CREATE FUNCTION opendataflow.record_gates(p_runs bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_run record;
    v_now timestamptz;  -- read once, so that both uses agree
BEGIN
    FOR v_run IN
        SELECT r.id, r.job, r.message, 'tests' AS kind, t.*
        FROM runs(p_runs) r
        CROSS JOIN LATERAL jsonb_to_record(r.metrics -> 'tests') AS t(subject text, commit text, passed boolean, gone text)
        WHERE r.metrics ? 'tests'
        UNION ALL
        SELECT r.id, r.job, r.message, 'preflight', '', 'preflight', r.metrics ->> 'preflight' <> 'job', NULL
        FROM runs(p_runs) r
        WHERE r.metrics ? 'preflight' AND (r.metrics ->> 'preflight' <> 'job' OR r.state = 'LOST')
        ORDER BY 2, 4, 1
    LOOP
        IF v_run.passed THEN
            UPDATE gate g SET passed = v_run.commit, passed_by = v_run.id
            WHERE g.job = v_run.job AND g.kind = v_run.kind AND g.kind = 'tests' AND g.subject = v_run.subject AND g.passed_by < v_run.id;
            PERFORM clear_gate(g.job, g.kind) FROM gate g
            WHERE g.job = v_run.job AND g.kind = v_run.kind AND g.subject = v_run.subject AND g.failed_by < v_run.id;
        ELSE
            v_now := clock_timestamp();
            INSERT INTO gate (job, kind, subject) SELECT v_run.job, v_run.kind, v_run.subject WHERE v_run.kind = 'preflight'
            ON CONFLICT DO NOTHING;
            UPDATE gate g
            SET passed = nullif(g.passed, v_run.gone), failed = v_run.commit, failed_by = v_run.id, failure = v_run.message,
                failing_since = coalesce(g.failing_since, v_now),
                looks = g.looks + CASE WHEN g.next_look_at >= v_now THEN 0 ELSE 1 END,
                next_look_at = CASE WHEN g.next_look_at >= v_now THEN g.next_look_at ELSE v_now + probe_pause(v_run.job, g.looks) END
            WHERE g.job = v_run.job AND g.kind = v_run.kind AND g.subject = v_run.subject
              AND greatest(g.failed_by, g.passed_by) < v_run.id;
        END IF;
    END LOOP;
END $$;

-- Return whether all that a job could do now are looks at locations of chunks that were not there the last time.
CREATE FUNCTION opendataflow.looked_in_vain(p_job text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM opendataflow.task t WHERE t.job = p_job AND t.looks > 0)
       AND NOT EXISTS (SELECT FROM opendataflow.task t WHERE t.job = p_job AND t.state IN ('QUEUED', 'RUNNING'))
       AND NOT EXISTS (SELECT FROM opendataflow.task t WHERE t.job = p_job AND t.state = 'RETRYING' AND t.looks = 0)
$$;

-- Return the tasks of a job that wait for the location of their chunk: their number, the first ones, and why the first
-- one waits; null if there are none. `lasting`: the number of tasks that were looked at more often than they are retried.
-- Reads 500 tasks at most.
CREATE FUNCTION opendataflow.missing_locations(p_job text) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('chunks', count(*), 'lasting', count(*) FILTER (WHERE t.looks > j.retry_limit),
                              'examples', (array_agg(t.data_id ORDER BY t.sort_key))[1:3],
                              'reason', coalesce((array_agg(t.reason ORDER BY t.sort_key) FILTER (WHERE t.reason IS NOT NULL))[1],
                                                 'the location of the chunk is missing'),
                              'since', min(r.finished_at))
    FROM opendataflow.job j
    CROSS JOIN LATERAL (SELECT t.* FROM opendataflow.task t
                        WHERE t.job = j.id AND t.looks > 0 AND t.state NOT IN ('HELD', 'SKIPPED') LIMIT 500) t
    CROSS JOIN LATERAL opendataflow.run_of(t.run) r
    WHERE j.id = p_job
    HAVING count(*) > 0
$$;
