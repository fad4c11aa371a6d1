-- What RunJob asks: as few questions as one run needs, because its connection is as new as its process.

-- What one RunJob has to know before it claims: the job as job_facts() tells it (null: there is none), whether it has
-- runs that are not ended, which may have to be taken over, and whether retries are due.
CREATE FUNCTION opendataflow.facts_before_claim(p_job text) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'facts', (SELECT to_jsonb(f) FROM opendataflow.job_facts(ARRAY[p_job]) f),
        'running', EXISTS (SELECT FROM opendataflow.run r WHERE r.job = p_job AND r.state = 'RUNNING'),
        'due', EXISTS (SELECT FROM opendataflow.task w
                       WHERE w.job = p_job AND w.state = 'RETRYING' AND w.due_at <= clock_timestamp()))
$$;

-- Opens a lease and claims one task under it, as open_lease() and claim() do.
CREATE FUNCTION opendataflow.claim_one(p_lease uuid, p_host text, p_boot text, p_runs_home text, p_ttl interval,
                                       p_job text, p_data_id text) RETURNS jsonb
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM open_lease(p_lease, 'local', p_host, p_boot, p_runs_home, p_ttl);
    RETURN claim(p_lease, p_job, 1, p_data_id => p_data_id);
END $$;
