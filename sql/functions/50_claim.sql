-- Claiming: atomically taking work. The intent (run, fence, locks) is committed before anything is started.

-- Opens a lease under an id that the process has chosen; without one nothing can be claimed. Leases that ended long
-- ago and have no runs go.
CREATE FUNCTION opendataflow.open_lease(p_lease uuid, p_kind text, p_host text, p_boot text, p_runs_home text,
                                        p_ttl interval) RETURNS void
LANGUAGE sql AS $$
    DELETE FROM opendataflow.lease l
    WHERE l.expires_at < clock_timestamp() - interval '1 day'
      AND NOT EXISTS (SELECT FROM opendataflow.run r WHERE r.lease = l.id AND r.state = 'RUNNING');
    INSERT INTO opendataflow.lease (id, kind, host, boot, runs_home, expires_at)
    VALUES (p_lease, p_kind, p_host, p_boot, p_runs_home, clock_timestamp() + p_ttl)
    ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at;
$$;

-- Renews a lease, also one that has ended meanwhile: what ends with it are only its
-- claims. False: the row is gone.
CREATE FUNCTION opendataflow.renew_lease(p_lease uuid, p_ttl interval) RETURNS boolean
LANGUAGE sql AS $$
    WITH renewed AS (
        UPDATE opendataflow.lease SET expires_at = clock_timestamp() + p_ttl WHERE id = p_lease RETURNING 1
    ) SELECT EXISTS (SELECT FROM renewed)
$$;

CREATE FUNCTION opendataflow.close_lease(p_lease uuid) RETURNS void
LANGUAGE sql AS $$
    DELETE FROM opendataflow.lease WHERE id = p_lease
$$;

-- Claims up to p_limit works of a job, in order, from the position after (p_after_rank, p_after_key) on; never
-- more than the job's parallelism leaves free, and one at a time while its breaker is open. p_data_id: only this one.
-- Returns
--   runs     [{run, data_id, fence, attempt, attempts, infrastructure_attempts, bounds: {data set: …}}]
--   facts    the job and its data sets at this moment, as job_facts() tells them, where there are runs
--   dropped  works that looked READY but whose chunks were locked or had changed; they stay as they are
--   rank, key (hex)  the position after which to go on; it never passes a dropped work
-- A short batch does not mean that there is nothing more: works whose rows were locked are passed by.
CREATE FUNCTION opendataflow.claim(p_lease uuid, p_job text, p_limit integer,
                                   p_after_rank integer DEFAULT -1, p_after_key bytea DEFAULT '',
                                   p_data_id text DEFAULT NULL) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    v_lease     lease;
    v_job       job;
    v_free      integer;
    v_inputs    text[];
    v_outputs   text[];
    v_ids       text[];
    v_ranks     smallint[];
    v_keys      bytea[];
    v_last_runs bigint[];
    v_forced    boolean[];
    v_good      text[];
    v_rank      integer := p_after_rank;    -- where the search goes on inside this call
    v_key       bytea := p_after_key;
    v_safe_rank integer := p_after_rank;    -- the position for the caller
    v_safe_key  bytea := p_after_key;
    v_dropped   integer := 0;
    v_claimed   jsonb := '[]';
    v_batch     jsonb;
    v_breaker   breaker;                    -- where it is open
BEGIN
    SELECT * INTO v_lease FROM lease l WHERE l.id = p_lease AND l.expires_at > clock_timestamp() FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the lease % has ended: open a new one', p_lease USING ERRCODE = 'DF003';
    END IF;
    PERFORM begin_event('claim', 'engine ' || v_lease.host);
    SELECT * INTO v_job FROM job j WHERE j.id = p_job FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no job %', p_job USING ERRCODE = 'DF002';
    END IF;
    -- A statement of its own: its snapshot is younger than the lock, so that no claim is overlooked.
    SELECT least(p_limit, v_job.parallelism - count(*)) INTO v_free FROM work w WHERE w.job = p_job AND w.state = 'RUNNING';
    IF v_job.suspended OR v_job.deleted THEN
        v_free := 0;
    END IF;
    SELECT * INTO v_breaker FROM breaker b WHERE b.job = p_job AND b.opened_at IS NOT NULL;
    IF FOUND THEN
        SELECT least(v_free, p.free), p.rank, p.key INTO v_free, v_rank, v_key FROM probe_place(v_breaker, p_data_id) p;
    END IF;
    -- From here on nothing is waited for. SKIP LOCKED still waits in one rare case (a row that was updated and is being
    -- updated again), which could end in a deadlock with a complete: then the claim is given up and can be repeated.
    PERFORM set_config('lock_timeout', '50ms', true);
    SELECT coalesce(array_agg(i.dataset ORDER BY i.dataset), '{}') INTO v_inputs FROM job_input i WHERE i.job = p_job;
    SELECT coalesce(array_agg(o.dataset ORDER BY o.dataset), '{}') INTO v_outputs FROM job_output o WHERE o.job = p_job;

    FOR v_round IN 1..3 LOOP
        EXIT WHEN v_free <= 0;
        SELECT array_agg(r.data_id), array_agg(r.rank), array_agg(r.sort_key), array_agg(r.run), array_agg(r.forced)
        INTO v_ids, v_ranks, v_keys, v_last_runs, v_forced
        FROM (SELECT w.data_id, w.rank, w.sort_key, w.run, w.forced FROM work w
              WHERE w.job = p_job AND w.state = 'READY' AND (w.rank, w.sort_key) > (v_rank::smallint, v_key)
                AND (p_data_id IS NULL OR w.sort_key = sort_key(p_data_id, v_job.descending))
              ORDER BY w.rank, w.sort_key LIMIT v_free FOR UPDATE SKIP LOCKED) AS r;
        EXIT WHEN v_ids IS NULL;

        -- A candidate is good when all its chunks could be locked and still are as its blockers said.
        WITH held AS MATERIALIZED (
            SELECT c.dataset, c.data_id, c.status, c.run, c.readers FROM chunk c
            WHERE c.data_id = ANY (v_ids) AND c.dataset = ANY (v_inputs || v_outputs)
            FOR UPDATE SKIP LOCKED
        )
        SELECT array_agg(n.data_id) INTO v_good
        FROM unnest(v_ids, v_last_runs, v_forced) AS n(data_id, last_run, forced)
        WHERE cardinality(v_inputs) = (SELECT count(*) FROM held h
                  WHERE h.data_id = n.data_id AND h.dataset = ANY (v_inputs) AND (h.status = 'READY' OR n.forced))
          AND cardinality(v_outputs) = (SELECT count(*) FROM held h
                  WHERE h.data_id = n.data_id AND h.dataset = ANY (v_outputs)
                    AND NOT bars_output(n.forced, h.status, h.readers, h.run, n.last_run));

        IF v_dropped = 0 AND v_breaker.job IS NULL THEN
            SELECT r.rank, r.sort_key INTO v_safe_rank, v_safe_key
            FROM unnest(v_ids, v_ranks, v_keys) WITH ORDINALITY AS r(data_id, rank, sort_key, place)
            WHERE r.place < coalesce((SELECT min(d.place) FROM unnest(v_ids) WITH ORDINALITY AS d(data_id, place)
                                      WHERE d.data_id <> ALL (coalesce(v_good, '{}'))), cardinality(v_ids) + 1)
            ORDER BY r.place DESC LIMIT 1;
            IF NOT FOUND THEN
                v_safe_rank := v_rank; v_safe_key := v_key;
            END IF;
        END IF;
        v_rank := v_ranks[cardinality(v_ids)];
        v_key := v_keys[cardinality(v_ids)];
        v_dropped := v_dropped + cardinality(v_ids) - coalesce(cardinality(v_good), 0);
        CONTINUE WHEN v_good IS NULL;

        v_batch := take(v_lease, p_job, v_inputs, v_outputs, v_good);
        v_claimed := v_claimed || v_batch;
        v_free := v_free - jsonb_array_length(v_batch);
    END LOOP;
    IF v_breaker.job IS NOT NULL AND v_claimed <> '[]' THEN
        PERFORM begin_probe(p_job, (v_claimed -> 0 ->> 'run')::bigint);
    END IF;
    RETURN jsonb_build_object(
        'runs', v_claimed, 'dropped', v_dropped, 'rank', v_safe_rank, 'key', encode(v_safe_key, 'hex'),
        'facts', CASE WHEN v_claimed <> '[]' THEN (SELECT to_jsonb(f) FROM job_facts(ARRAY[p_job]) f) END);
END $$;

-- The writes of a claim, for works and chunks that the caller has locked and found good. Inputs that are not READY, which
-- only forced works have, are not read-locked.
CREATE FUNCTION opendataflow.take(p_lease opendataflow.lease, p_job text, p_inputs text[], p_outputs text[], p_ids text[])
RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    v_runs   bigint[];
    v_ids    text[];
    v_fences bigint[];
BEGIN
    WITH made AS (
        INSERT INTO run (job, data_id, attempt, fence, lease, host, boot, runs_home, reads, read_fences,
                         writes, forced)
        SELECT p_job, w.data_id, w.attempts + w.infrastructure_attempts + 1, nextval('fence'), p_lease.id, p_lease.host,
               p_lease.boot, p_lease.runs_home, coalesce(n.datasets, '{}'), coalesce(n.fences, '{}'), p_outputs, w.forced
        FROM work w
        CROSS JOIN LATERAL (SELECT array_agg(c.dataset ORDER BY c.dataset) AS datasets, array_agg(c.fence ORDER BY c.dataset) AS fences
                            FROM chunk c WHERE c.dataset = ANY (p_inputs) AND c.data_id = w.data_id AND c.status = 'READY') n
        WHERE w.job = p_job AND w.data_id = ANY (p_ids)
        ORDER BY w.rank, w.sort_key
        RETURNING id, data_id, fence
    )
    SELECT array_agg(id), array_agg(data_id), array_agg(fence) INTO v_runs, v_ids, v_fences FROM made;

    UPDATE work w SET state = 'RUNNING', run = r.run, fence = r.fence, due_at = NULL, reason = NULL, blockers = 0,
                      stale = false
    FROM unnest(v_runs, v_ids, v_fences) AS r(run, data_id, fence) WHERE w.job = p_job AND w.data_id = r.data_id;
    UPDATE chunk c SET status = 'RUNNING', run = r.run, fence = r.fence, reason = NULL
    FROM unnest(v_runs, v_ids, v_fences) AS r(run, data_id, fence) WHERE c.dataset = ANY (p_outputs) AND c.data_id = r.data_id;
    UPDATE chunk c SET readers = c.readers + 1
    WHERE c.dataset = ANY (p_inputs) AND c.data_id = ANY (v_ids) AND c.status = 'READY';

    RETURN (SELECT jsonb_agg(described_run(n.id) ORDER BY n.place) FROM unnest(v_runs) WITH ORDINALITY AS n(id, place));
END $$;

-- What an engine has to know of a run that it starts or takes over.
CREATE FUNCTION opendataflow.described_run(p_run bigint) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'run', r.id, 'job', r.job, 'data_id', r.data_id, 'fence', r.fence, 'attempt', r.attempt, 'lease', r.lease,
        'host', r.host, 'boot', r.boot, 'runs_home', r.runs_home,
        'attempts', w.attempts, 'infrastructure_attempts', w.infrastructure_attempts,
        'bounds', (SELECT coalesce(jsonb_object_agg(c.dataset, c.bounds), '{}') FROM opendataflow.chunk c
                   WHERE c.dataset = ANY (r.reads || r.writes
                                          || ARRAY(SELECT i.dataset FROM opendataflow.job_input i WHERE i.job = r.job))
                     AND c.data_id = r.data_id AND c.bounds IS NOT NULL))
    FROM opendataflow.run r JOIN opendataflow.work w ON w.job = r.job AND w.data_id = r.data_id
    WHERE r.id = p_run
$$;

-- Runs of a lease that a person wants to be ended.
CREATE FUNCTION opendataflow.runs_to_cancel(p_lease uuid) RETURNS SETOF bigint
LANGUAGE sql STABLE AS $$
    SELECT r.id FROM opendataflow.run r WHERE r.lease = p_lease AND r.state = 'RUNNING' AND r.cancel_requested
$$;

-- Runs that are not ended: those of one lease (an engine that lost the answer to a claim finds them here) or of all
-- others, each with whether its lease still lives.
CREATE FUNCTION opendataflow.running_runs(p_lease uuid, p_own boolean) RETURNS TABLE (run jsonb, lease_lives boolean)
LANGUAGE sql STABLE AS $$
    SELECT opendataflow.described_run(r.id),
           EXISTS (SELECT FROM opendataflow.lease l WHERE l.id = r.lease AND l.expires_at > clock_timestamp())
    FROM opendataflow.run r WHERE r.state = 'RUNNING' AND (r.lease = p_lease) = p_own ORDER BY r.id
$$;
