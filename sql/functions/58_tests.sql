-- Unit tests of the projects of jobs. Runs report which commits pass. Commits that fail are not used.

-- Return how many tasks of a job may be claimed now according to its tests; null for no limit.
-- If no commit may be used, one run at a time checks the project, with the pauses of the job's backoff.
CREATE FUNCTION opendataflow.claim_limit_by_tests(p_job text) RETURNS integer
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN t.next_look_at > clock_timestamp()
                     OR EXISTS (SELECT FROM opendataflow.task w WHERE w.job = t.job AND w.state = 'RUNNING') THEN 0 ELSE 1 END
    FROM opendataflow.project_test t WHERE t.job = p_job AND t.failed IS NOT NULL AND t.passed IS NULL
$$;

-- Store which tests the applied jobs require. Clear earlier failures, because the change may have fixed them.
CREATE FUNCTION opendataflow.put_tests(p_jobs jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM project_test t USING jsonb_to_recordset(p_jobs) AS n(id text, tests text)
    WHERE t.job = n.id AND t.subject IS DISTINCT FROM n.tests;
    INSERT INTO project_test (job, subject)
    SELECT n.id, n.tests FROM jsonb_to_recordset(p_jobs) AS n(id text, tests text) WHERE n.tests IS NOT NULL ORDER BY n.id
    ON CONFLICT DO NOTHING;
    PERFORM clear_test_failure(n.value ->> 'id') FROM jsonb_array_elements(p_jobs) AS n ORDER BY n.value ->> 'id';
END $$;

-- Clear the test failure of a job, so that the next run tries the tests again.
CREATE FUNCTION opendataflow.clear_test_failure(p_job text) RETURNS void
LANGUAGE sql AS $$
    UPDATE opendataflow.project_test t SET (failed, failure, failing_since, next_look_at, looks) = (NULL, NULL, NULL, NULL, 0)
    WHERE t.job = p_job AND t.failed IS NOT NULL
$$;

-- Record the test results of ended runs. metrics.tests is {subject, commit, passed, gone}.
-- `gone`: the commit that passed before and can't be used any more.
-- Of two runs the later one counts, even if it ends first.
CREATE FUNCTION opendataflow.record_test_results(p_runs bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_run record;
    v_now timestamptz;  -- read once, so that both uses agree
BEGIN
    FOR v_run IN
        SELECT r.id, r.job, r.message, t.*
        FROM runs(p_runs) r
        CROSS JOIN LATERAL jsonb_to_record(r.metrics -> 'tests') AS t(subject text, commit text, passed boolean, gone text)
        WHERE r.metrics ? 'tests'
        ORDER BY r.job, r.id
    LOOP
        IF v_run.passed THEN
            UPDATE project_test t SET passed = v_run.commit, passed_by = v_run.id
            WHERE t.job = v_run.job AND t.subject = v_run.subject AND t.passed_by < v_run.id;
            PERFORM clear_test_failure(t.job) FROM project_test t WHERE t.job = v_run.job AND t.subject = v_run.subject AND t.failed_by < v_run.id;
        ELSE
            v_now := clock_timestamp();
            UPDATE project_test t
            SET passed = nullif(t.passed, v_run.gone), failed = v_run.commit, failed_by = v_run.id, failure = v_run.message,
                failing_since = coalesce(t.failing_since, v_now),
                looks = t.looks + CASE WHEN t.next_look_at >= v_now THEN 0 ELSE 1 END,
                next_look_at = CASE WHEN t.next_look_at >= v_now THEN t.next_look_at ELSE v_now + probe_pause(v_run.job, t.looks) END
            WHERE t.job = v_run.job AND t.subject = v_run.subject AND greatest(t.failed_by, t.passed_by) < v_run.id;
        END IF;
    END LOOP;
END $$;
