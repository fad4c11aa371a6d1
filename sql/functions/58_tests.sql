-- The unit tests of the projects of jobs: runs tell which commits pass them, and what has failed is not used.

-- How many tasks of a job may be claimed now as far as its tests say; null: any number. With nothing that may be used, one run
-- at a time looks whether the project is mended, with the pauses of the job's backoff between.
CREATE FUNCTION opendataflow.claim_limit_by_tests(p_job text) RETURNS integer
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN t.next_look_at > clock_timestamp()
                     OR EXISTS (SELECT FROM opendataflow.task w WHERE w.job = t.job AND w.state = 'RUNNING') THEN 0 ELSE 1 END
    FROM opendataflow.project_test t WHERE t.job = p_job AND t.failed IS NOT NULL AND t.passed IS NULL
$$;

-- What jobs that are applied want tested. Whatever a person has changed may have mended what failed.
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

-- Forgets that tests of a job have failed, so that the next run tries them once more.
CREATE FUNCTION opendataflow.clear_test_failure(p_job text) RETURNS void
LANGUAGE sql AS $$
    UPDATE opendataflow.project_test t SET (failed, failure, failing_since, next_look_at, looks) = (NULL, NULL, NULL, NULL, 0)
    WHERE t.job = p_job AND t.failed IS NOT NULL
$$;

-- Remembers what ended runs tell of their projects: metrics.tests is {subject, commit, passed, gone: the commit that has
-- passed before, where it can't be used any more}. Of two runs the later one counts, also where it ends first.
CREATE FUNCTION opendataflow.record_test_results(p_runs bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_end record;
    v_now timestamptz;  -- asked for once: a pause is over, or it is not
BEGIN
    FOR v_end IN
        SELECT r.id, r.job, r.message, t.*
        FROM runs(p_runs) r
        CROSS JOIN LATERAL jsonb_to_record(r.metrics -> 'tests') AS t(subject text, commit text, passed boolean, gone text)
        WHERE r.metrics ? 'tests'
        ORDER BY r.job, r.id
    LOOP
        IF v_end.passed THEN
            UPDATE project_test t SET passed = v_end.commit, passed_by = v_end.id
            WHERE t.job = v_end.job AND t.subject = v_end.subject AND t.passed_by < v_end.id;
            PERFORM clear_test_failure(t.job) FROM project_test t WHERE t.job = v_end.job AND t.subject = v_end.subject AND t.failed_by < v_end.id;
        ELSE
            v_now := clock_timestamp();
            UPDATE project_test t
            SET passed = nullif(t.passed, v_end.gone), failed = v_end.commit, failed_by = v_end.id, failure = v_end.message,
                failing_since = coalesce(t.failing_since, v_now),
                looks = t.looks + CASE WHEN t.next_look_at >= v_now THEN 0 ELSE 1 END,
                next_look_at = CASE WHEN t.next_look_at >= v_now THEN t.next_look_at ELSE v_now + probe_pause(v_end.job, t.looks) END
            WHERE t.job = v_end.job AND t.subject = v_end.subject AND greatest(t.failed_by, t.passed_by) < v_end.id;
        END IF;
    END LOOP;
END $$;
