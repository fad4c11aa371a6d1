-- Queries of RunJob. RunJob uses as few statements as possible, because each run opens a new connection.

-- Return what RunJob needs before it claims: `facts`, the job as job_facts() returns it (null if there is no job),
-- `running`, whether runs may have to be taken over, and `due`, whether retries are due.
CREATE FUNCTION opendataflow.facts_before_claim(p_job text) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'facts', (SELECT to_jsonb(f) FROM opendataflow.job_facts(ARRAY[p_job]) f),
        'running', EXISTS (SELECT FROM opendataflow.run r WHERE r.job = p_job AND r.state = 'RUNNING'),
        'due', EXISTS (SELECT FROM opendataflow.task t
                       WHERE t.job = p_job AND t.state = 'RETRYING' AND t.due_at <= clock_timestamp()))
$$;

-- Open a lease and claim one task under it, as open_lease() and claim() do.
CREATE FUNCTION opendataflow.claim_one(p_lease uuid, p_host text, p_boot text, p_runs_home text, p_ttl interval,
                                       p_job text, p_data_id text) RETURNS jsonb
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM open_lease(p_lease, 'local', p_host, p_boot, p_runs_home, p_ttl);
    RETURN claim(p_lease, p_job, 1, p_data_id => p_data_id);
END $$;
