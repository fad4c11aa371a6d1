-- Claims take tasks atomically. The run, its fencing token and its locks are committed before any process starts.

-- Open a lease under an id that the process has chosen. A claim requires a lease.
-- Also delete leases that ended more than a day ago and have no running runs.
CREATE FUNCTION opendataflow.open_lease(p_lease uuid, p_kind text, p_host text, p_boot text, p_runs_home text,
                                        p_ttl interval, p_slots integer DEFAULT NULL, p_jobs text[] DEFAULT '{}') RETURNS void
LANGUAGE sql AS $$
    DELETE FROM opendataflow.lease l
    WHERE l.expires_at < clock_timestamp() - interval '1 day'
      AND NOT EXISTS (SELECT FROM opendataflow.run r WHERE r.lease = l.id AND r.state = 'RUNNING');
    INSERT INTO opendataflow.lease (id, kind, host, boot, runs_home, expires_at, slots, jobs)
    VALUES (p_lease, p_kind, p_host, p_boot, p_runs_home, clock_timestamp() + p_ttl, p_slots, p_jobs)
    ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at;
$$;

-- Renew a lease, also one that has ended: an ended lease prevents only claims. Return false if the row does not exist.
-- p_run, p_fence: the newest run that the owner knows; null: none. Raises DF009 if the run is missing here.
CREATE FUNCTION opendataflow.renew_lease(p_lease uuid, p_ttl interval, p_run bigint DEFAULT NULL, p_fence bigint DEFAULT NULL) RETURNS boolean
LANGUAGE sql AS $$
    SELECT opendataflow.require_run(p_run, p_fence);
    WITH renewed AS (
        UPDATE opendataflow.lease SET expires_at = clock_timestamp() + p_ttl WHERE id = p_lease RETURNING 1
    ) SELECT EXISTS (SELECT FROM renewed)
$$;

-- Raise DF009 if this database does not know a run: it has gone back in time. p_run: null is no run.
CREATE FUNCTION opendataflow.require_run(p_run bigint, p_fence bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF p_run IS NOT NULL AND NOT EXISTS (SELECT FROM run r WHERE r.id = p_run AND r.fence = p_fence) THEN
        PERFORM report_lost_history(format('run %s', p_run));
    END IF;
END $$;

-- Raise DF009. p_lost: what this database does not know.
CREATE FUNCTION opendataflow.report_lost_history(p_lost text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'history was lost: the database does not know %; it was restored, or a failover has lost its last commits', p_lost
        USING ERRCODE = 'DF009';
END $$;

-- Delete a lease. Its runs continue.
CREATE FUNCTION opendataflow.close_lease(p_lease uuid) RETURNS void
LANGUAGE sql AS $$
    DELETE FROM opendataflow.lease WHERE id = p_lease
$$;

-- Claim up to p_limit QUEUED tasks of a job, in order, after the position (p_after_rank, p_after_key).
-- Claims nothing while a data set of another namespace is not shared with the job's. Never claims more than its parallelism allows. An open breaker or a closed gate allows one run at a time.
-- Omits ids with an orphan. p_data_id: claim only this id. Returns
--   runs     [{run, data_id, fence, nonce, attempt, attempts, infrastructure_attempts, bounds: {data set: …}}]
--   owner    the values that all runs share: {job, lease, host, boot, runs_home}
--   facts    the job and its data sets now, as job_facts() returns them; null if there are no runs
--   dropped  the number of QUEUED tasks whose chunks were locked or had changed; they stay QUEUED
--   rank, key (hex)  the position at which the next call continues; it never passes a dropped task
-- A short batch does not mean that no task is left: tasks whose rows were locked are skipped.
-- Locks levels 1, 2, 4, 3; does not wait for rows of tasks and chunks.
-- Raises DF002 if the job is unknown and DF003 if the lease has ended.
CREATE FUNCTION opendataflow.claim(p_lease uuid, p_job text, p_limit integer,
                                   p_after_rank integer DEFAULT -1, p_after_key bytea DEFAULT '',
                                   p_data_id text DEFAULT NULL) RETURNS json
LANGUAGE plpgsql AS $$
DECLARE
    v_lease       lease;
    v_job         job;
    v_free        integer;
    v_inputs      text[];
    v_outputs     text[];
    v_ranks       smallint[];               -- of all found tasks
    v_keys        bytea[];
    v_claimable   integer;                  -- number of claimable tasks
    v_leading     integer;                  -- number of tasks before the first one that is not claimable
    v_runs        bigint[];                 -- of the claimable tasks: runs,
    v_fences      bigint[];
    v_tasks       tid[];                    -- task rows,
    v_reads       tid[];                    -- and chunk rows
    v_writes      tid[];
    v_batch       json[];
    v_rank        integer := p_after_rank;  -- the search position inside this call
    v_key         bytea := p_after_key;
    v_resume_rank integer := p_after_rank;  -- the position that is returned
    v_resume_key  bytea := p_after_key;
    v_dropped     integer := 0;
    v_claimed     json[] := '{}';
    v_breaker     breaker;                  -- only if it is open
    v_orphaned    text[];                   -- ids that a forgotten run may still write
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
    IF v_lease.kind = 'operator' THEN  -- pods run in the namespace of the job
        v_lease.runs_home := coalesce(nullif(namespace_of(p_job), ''), v_lease.runs_home);
    END IF;
    -- A separate statement: its snapshot is newer than the lock, so that it counts all claims.
    SELECT least(p_limit, v_job.parallelism - count(*)) INTO v_free FROM task t WHERE t.job = p_job AND t.state = 'RUNNING';
    IF v_job.suspended OR v_job.deleted OR sharing_refusal(p_job) IS NOT NULL THEN
        v_free := 0;
    END IF;
    SELECT * INTO v_breaker FROM breaker b WHERE b.job = p_job AND b.opened_at IS NOT NULL;
    IF FOUND THEN
        SELECT least(v_free, p.free), p.rank, p.key INTO v_free, v_rank, v_key FROM probe_position(v_breaker, p_data_id) p;
    END IF;
    v_free := least(v_free, claim_limit_by_gates(p_job));
    -- No lock is waited for after this point, with one exception.
    -- SKIP LOCKED may wait for a row that was updated and is being updated again, which could deadlock with complete().
    -- The timeout then aborts the claim, and the caller can repeat it.
    PERFORM set_config('lock_timeout', '50ms', true);
    -- Omit `today`: its days stay READY and no run locks them. Any number of jobs can claim the same day at once.
    v_inputs := ARRAY(SELECT i.dataset FROM job_input i WHERE i.job = p_job AND i.dataset <> 'today' ORDER BY i.dataset);
    v_outputs := ARRAY(SELECT o.dataset FROM job_output o WHERE o.job = p_job ORDER BY o.dataset);
    v_orphaned := ARRAY(SELECT o.data_id FROM orphans_of(p_job) o);

    IF v_job.declaration IS NULL AND v_free > 0 THEN
        v_job.declaration := record_declaration(p_job);
    END IF;

    FOR v_round IN 1..3 LOOP
        EXIT WHEN v_free <= 0;
        -- A task is claimable if all its chunks could be locked and still have no blocker.
        -- Run ids are taken here and not by the table, so that no later join is needed.
        WITH found AS MATERIALIZED (
            SELECT t.ctid AS at, t.data_id, t.rank, t.sort_key, t.run AS last_run, t.forced, t.attempts, t.infrastructure_attempts
            FROM task t
            WHERE t.job = p_job AND t.state = 'QUEUED' AND (t.rank, t.sort_key) > (v_rank::smallint, v_key)
              AND (p_data_id IS NULL OR t.sort_key = sort_key(p_data_id, v_job.descending)) AND t.data_id <> ALL (v_orphaned)
            ORDER BY t.rank, t.sort_key LIMIT v_free FOR UPDATE SKIP LOCKED
        ), checked AS (
            SELECT n.*, h.*
            FROM (SELECT row_number() OVER () AS place, f.* FROM found f) AS n
            CROSS JOIN LATERAL (
                SELECT count(*) FILTER (WHERE c.is_input AND (c.status = 'READY' OR n.forced))
                           = CASE WHEN n.forced THEN (SELECT count(*) FROM chunk x WHERE x.dataset = ANY (v_inputs) AND x.data_id = n.data_id)
                                  ELSE cardinality(v_inputs) END
                       AND count(*) FILTER (WHERE NOT c.is_input AND NOT blocks_output(n.forced, c.status, c.readers, c.run, n.last_run))
                           = cardinality(v_outputs) AS claimable,
                       array_agg(c.dataset ORDER BY c.dataset) FILTER (WHERE c.is_input AND c.status = 'READY') AS reads,
                       array_agg(c.fence ORDER BY c.dataset) FILTER (WHERE c.is_input AND c.status = 'READY') AS read_fences,
                       array_agg(c.at) FILTER (WHERE c.is_input AND c.status = 'READY') AS read_at,
                       array_agg(c.at) FILTER (WHERE NOT c.is_input) AS written_at,
                       json_object_agg(c.dataset, c.bounds) FILTER (WHERE c.bounds IS NOT NULL) AS bounds
                FROM (SELECT c.ctid AS at, c.dataset, c.status, c.readers, c.run, c.fence, c.bounds, c.dataset = ANY (v_inputs) AS is_input
                      FROM chunk c WHERE c.dataset = ANY (v_inputs || v_outputs) AND c.data_id = n.data_id
                      FOR UPDATE SKIP LOCKED) AS c) AS h
            ORDER BY n.place
        ), numbered AS MATERIALIZED (
            SELECT c.*, CASE WHEN c.claimable THEN nextval('run_id_seq') END AS run, CASE WHEN c.claimable THEN next_fence() END AS fence,
                   gen_random_uuid() AS nonce
            FROM checked AS c
        ), made AS (
            INSERT INTO run (id, job, data_id, attempt, fence, nonce, lease, host, boot, runs_home, reads, read_fences, writes, forced,
                             declaration)
            OVERRIDING SYSTEM VALUE
            SELECT n.run, p_job, n.data_id, n.attempts + n.infrastructure_attempts + 1, n.fence, n.nonce, v_lease.id, v_lease.host,
                   v_lease.boot, v_lease.runs_home, coalesce(n.reads, '{}'), coalesce(n.read_fences, '{}'), v_outputs, n.forced,
                   v_job.declaration
            FROM numbered n WHERE n.claimable
        )
        SELECT array_agg(n.rank), array_agg(n.sort_key),
               count(*) FILTER (WHERE n.claimable), coalesce(min(n.place) FILTER (WHERE NOT n.claimable) - 1, count(*)),
               array_agg(n.run) FILTER (WHERE n.claimable), array_agg(n.fence) FILTER (WHERE n.claimable),
               array_agg(n.at) FILTER (WHERE n.claimable), array_agg(n.written_at) FILTER (WHERE n.claimable AND cardinality(v_outputs) > 0),
               (SELECT array_agg(a) FROM numbered n, unnest(n.read_at) AS a WHERE n.claimable),
               array_agg(json_build_object(
                   'run', n.run, 'data_id', n.data_id, 'fence', n.fence, 'nonce', n.nonce, 'attempt', n.attempts + n.infrastructure_attempts + 1,
                   'attempts', n.attempts, 'infrastructure_attempts', n.infrastructure_attempts,
                   'bounds', coalesce(n.bounds, '{}'))) FILTER (WHERE n.claimable)
        INTO v_ranks, v_keys, v_claimable, v_leading, v_runs, v_fences, v_tasks, v_writes, v_reads, v_batch
        FROM numbered n;
        EXIT WHEN v_ranks IS NULL;

        IF v_dropped = 0 AND v_breaker.job IS NULL THEN
            v_resume_rank := CASE WHEN v_leading > 0 THEN v_ranks[v_leading] ELSE v_rank END;
            v_resume_key := CASE WHEN v_leading > 0 THEN v_keys[v_leading] ELSE v_key END;
        END IF;
        v_rank := v_ranks[cardinality(v_ranks)];
        v_key := v_keys[cardinality(v_keys)];
        v_dropped := v_dropped + cardinality(v_ranks) - v_claimable;
        CONTINUE WHEN v_claimable = 0;
        PERFORM mark_claimed(v_runs, v_fences, v_tasks, v_reads, v_writes);
        IF v_breaker.job IS NOT NULL THEN
            PERFORM begin_probe(p_job, v_runs[1]);
        END IF;
        v_claimed := v_claimed || v_batch;
        v_free := v_free - v_claimable;
    END LOOP;
    RETURN json_build_object(
        'runs', to_json(v_claimed), 'dropped', v_dropped, 'rank', v_resume_rank, 'key', encode(v_resume_key, 'hex'),
        'owner', json_build_object('job', p_job, 'lease', v_lease.id, 'host', v_lease.host, 'boot', v_lease.boot, 'runs_home', v_lease.runs_home),
        'facts', CASE WHEN cardinality(v_claimed) > 0 THEN (SELECT to_json(f) FROM job_facts(ARRAY[p_job]) f) END);
END $$;

-- Mark tasks, read chunks and written chunks as claimed. The caller has locked all rows.
-- Each run has one element in p_runs, p_fences and p_tasks, and the same number of elements in p_writes.
CREATE FUNCTION opendataflow.mark_claimed(p_runs bigint[], p_fences bigint[], p_tasks tid[], p_reads tid[], p_writes tid[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE task t SET state = 'RUNNING', run = r.run, fence = r.fence, due_at = NULL, reason = NULL, blockers = 0,
                      stale = false, bounds_changed = false, incomplete = false
    FROM unnest(p_runs, p_fences, p_tasks) AS r(run, fence, at) WHERE t.ctid = r.at;
    UPDATE chunk c
    SET status = CASE WHEN l.run IS NULL THEN c.status ELSE 'RUNNING' END,
        run = coalesce(l.run, c.run), fence = coalesce(l.fence, c.fence),
        reason = CASE WHEN l.run IS NULL THEN c.reason END,
        readers = c.readers + (l.run IS NULL)::integer
    FROM (SELECT a AS at, NULL::bigint AS run, NULL::bigint AS fence FROM unnest(p_reads) AS a
          UNION ALL
          SELECT t.at, p_runs[t.run], p_fences[t.run]
          FROM (SELECT a.at, 1 + (a.place - 1) / (cardinality(p_writes) / cardinality(p_runs)) AS run
                FROM unnest(p_writes) WITH ORDINALITY AS a(at, place)) t) AS l
    WHERE c.ctid = l.at;
END $$;

-- Return what an engine needs to take over a run: one element of claim()'s `runs`, merged with its `owner`.
CREATE FUNCTION opendataflow.run_for_takeover(p_run bigint) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'run', r.id, 'job', r.job, 'data_id', r.data_id, 'fence', r.fence, 'nonce', r.nonce, 'attempt', r.attempt, 'lease', r.lease,
        'host', r.host, 'boot', r.boot, 'runs_home', r.runs_home,
        'before_restore', coalesce(r.claimed_at < (SELECT d.restored_at FROM opendataflow.leader d), false),
        'attempts', t.attempts, 'infrastructure_attempts', t.infrastructure_attempts,
        'bounds', (SELECT coalesce(jsonb_object_agg(c.dataset, c.bounds), '{}') FROM opendataflow.chunk c
                   WHERE c.dataset = ANY (r.reads || r.writes
                                          || ARRAY(SELECT i.dataset FROM opendataflow.job_input i WHERE i.job = r.job))
                     AND c.data_id = r.data_id AND c.bounds IS NOT NULL))
    FROM opendataflow.run r JOIN opendataflow.task t ON t.job = r.job AND t.data_id = r.data_id
    WHERE r.id = p_run
$$;

-- Return the runs of a lease that a person asked to cancel.
CREATE FUNCTION opendataflow.runs_to_cancel(p_lease uuid) RETURNS SETOF bigint
LANGUAGE sql STABLE AS $$
    SELECT r.id FROM opendataflow.run r WHERE r.lease = p_lease AND r.state = 'RUNNING' AND r.cancel_requested
$$;

-- Return the running runs of one lease (p_own), or of all other leases, each with whether its lease is alive.
-- An engine that lost the result of a claim finds its runs here.
CREATE FUNCTION opendataflow.running_runs(p_lease uuid, p_own boolean) RETURNS TABLE (run jsonb, lease_lives boolean)
LANGUAGE sql STABLE AS $$
    SELECT opendataflow.run_for_takeover(r.id),
           EXISTS (SELECT FROM opendataflow.lease l WHERE l.id = r.lease AND l.expires_at > clock_timestamp())
    FROM opendataflow.run r WHERE r.state = 'RUNNING' AND (r.lease = p_lease) = p_own ORDER BY r.id
$$;
