-- Claiming: atomically taking tasks. The intent (run, fence, locks) is committed before anything is started.

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

-- Claims up to p_limit tasks of a job, in order, from the position after (p_after_rank, p_after_key) on; never
-- more than the job's parallelism leaves free, and one at a time while its breaker is open or its tests fail. p_data_id: only this one.
-- Returns
--   runs     [{run, data_id, fence, attempt, attempts, infrastructure_attempts, bounds: {data set: …}}]
--   owner    what all of them have in common: {job, lease, host, boot, runs_home}
--   facts    the job and its data sets at this moment, as job_facts() tells them, where there are runs
--   dropped  tasks that looked QUEUED but whose chunks were locked or had changed; they stay as they are
--   rank, key (hex)  the position after which to go on; it never passes a dropped task
-- A short batch does not mean that there is nothing more: tasks whose rows were locked are passed by.
CREATE FUNCTION opendataflow.claim(p_lease uuid, p_job text, p_limit integer,
                                   p_after_rank integer DEFAULT -1, p_after_key bytea DEFAULT '',
                                   p_data_id text DEFAULT NULL) RETURNS json
LANGUAGE plpgsql AS $$
DECLARE
    v_lease     lease;
    v_job       job;
    v_free      integer;
    v_inputs    text[];
    v_outputs   text[];
    v_ranks     smallint[];                 -- of all tasks that were found
    v_keys      bytea[];
    v_good      integer;                    -- so many of them could be claimed,
    v_passed    integer;                    -- so many before the first that could not
    v_runs      bigint[];                   -- of those that could: their runs,
    v_fences    bigint[];
    v_tasks     tid[];                      -- their rows,
    v_reads     tid[];                      -- and those of their chunks
    v_writes    tid[];
    v_told      json[];
    v_rank      integer := p_after_rank;    -- where the search goes on inside this call
    v_key       bytea := p_after_key;
    v_safe_rank integer := p_after_rank;    -- the position for the caller
    v_safe_key  bytea := p_after_key;
    v_dropped   integer := 0;
    v_claimed   json[] := '{}';
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
    IF v_lease.kind = 'operator' THEN  -- its runs live in the namespace of the job's resource
        v_lease.runs_home := coalesce(split_part(v_job.owner, '/', 1), v_lease.runs_home);
    END IF;
    -- A statement of its own: its snapshot is younger than the lock, so that no claim is overlooked.
    SELECT least(p_limit, v_job.parallelism - count(*)) INTO v_free FROM task w WHERE w.job = p_job AND w.state = 'RUNNING';
    IF v_job.suspended OR v_job.deleted THEN
        v_free := 0;
    END IF;
    SELECT * INTO v_breaker FROM breaker b WHERE b.job = p_job AND b.opened_at IS NOT NULL;
    IF FOUND THEN
        SELECT least(v_free, p.free), p.rank, p.key INTO v_free, v_rank, v_key FROM probe_position(v_breaker, p_data_id) p;
    END IF;
    v_free := least(v_free, claim_limit_by_tests(p_job));
    -- From here on nothing is waited for. SKIP LOCKED still waits in one rare case (a row that was updated and is being
    -- updated again), which could end in a deadlock with a complete: then the claim is given up and can be repeated.
    PERFORM set_config('lock_timeout', '50ms', true);
    -- Without `today`, whose days stay READY: nobody locks them, so that any number of jobs can claim one at a time.
    v_inputs := ARRAY(SELECT i.dataset FROM job_input i WHERE i.job = p_job AND i.dataset <> 'today' ORDER BY i.dataset);
    v_outputs := ARRAY(SELECT o.dataset FROM job_output o WHERE o.job = p_job ORDER BY o.dataset);

    IF v_job.declaration IS NULL AND v_free > 0 THEN
        v_job.declaration := record_declaration(p_job);
    END IF;

    FOR v_round IN 1..3 LOOP
        EXIT WHEN v_free <= 0;
        -- A task is good when all its chunks could be locked and still are as its blockers said. The ids of runs are taken
        -- here and not by the table, so that nothing has to be joined to them afterwards.
        WITH found AS MATERIALIZED (
            SELECT w.ctid AS at, w.data_id, w.rank, w.sort_key, w.run AS last_run, w.forced, w.attempts, w.infrastructure_attempts
            FROM task w
            WHERE w.job = p_job AND w.state = 'QUEUED' AND (w.rank, w.sort_key) > (v_rank::smallint, v_key)
              AND (p_data_id IS NULL OR w.sort_key = sort_key(p_data_id, v_job.descending))
            ORDER BY w.rank, w.sort_key LIMIT v_free FOR UPDATE SKIP LOCKED
        ), checked AS (
            SELECT n.*, h.*
            FROM (SELECT row_number() OVER () AS place, f.* FROM found f) AS n
            CROSS JOIN LATERAL (
                SELECT count(*) FILTER (WHERE c.is_input AND (c.status = 'READY' OR n.forced)) = cardinality(v_inputs)
                       AND count(*) FILTER (WHERE NOT c.is_input AND NOT blocks_output(n.forced, c.status, c.readers, c.run, n.last_run))
                           = cardinality(v_outputs) AS good,
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
            SELECT c.*, CASE WHEN c.good THEN nextval('run_id_seq') END AS run, CASE WHEN c.good THEN nextval('fence') END AS fence
            FROM checked AS c
        ), made AS (
            INSERT INTO run (id, job, data_id, attempt, fence, lease, host, boot, runs_home, reads, read_fences, writes, forced,
                             declaration)
            OVERRIDING SYSTEM VALUE
            SELECT n.run, p_job, n.data_id, n.attempts + n.infrastructure_attempts + 1, n.fence, v_lease.id, v_lease.host,
                   v_lease.boot, v_lease.runs_home, coalesce(n.reads, '{}'), coalesce(n.read_fences, '{}'), v_outputs, n.forced,
                   v_job.declaration
            FROM numbered n WHERE n.good
        )
        SELECT array_agg(n.rank), array_agg(n.sort_key),
               count(*) FILTER (WHERE n.good), coalesce(min(n.place) FILTER (WHERE NOT n.good) - 1, count(*)),
               array_agg(n.run) FILTER (WHERE n.good), array_agg(n.fence) FILTER (WHERE n.good),
               array_agg(n.at) FILTER (WHERE n.good), array_agg(n.written_at) FILTER (WHERE n.good AND cardinality(v_outputs) > 0),
               (SELECT array_agg(a) FROM numbered n, unnest(n.read_at) AS a WHERE n.good),
               array_agg(json_build_object(
                   'run', n.run, 'data_id', n.data_id, 'fence', n.fence, 'attempt', n.attempts + n.infrastructure_attempts + 1,
                   'attempts', n.attempts, 'infrastructure_attempts', n.infrastructure_attempts,
                   'bounds', coalesce(n.bounds, '{}'))) FILTER (WHERE n.good)
        INTO v_ranks, v_keys, v_good, v_passed, v_runs, v_fences, v_tasks, v_writes, v_reads, v_told
        FROM numbered n;
        EXIT WHEN v_ranks IS NULL;

        IF v_dropped = 0 AND v_breaker.job IS NULL THEN
            v_safe_rank := CASE WHEN v_passed > 0 THEN v_ranks[v_passed] ELSE v_rank END;
            v_safe_key := CASE WHEN v_passed > 0 THEN v_keys[v_passed] ELSE v_key END;
        END IF;
        v_rank := v_ranks[cardinality(v_ranks)];
        v_key := v_keys[cardinality(v_keys)];
        v_dropped := v_dropped + cardinality(v_ranks) - v_good;
        CONTINUE WHEN v_good = 0;
        PERFORM mark_claimed(v_runs, v_fences, v_tasks, v_reads, v_writes);
        IF v_breaker.job IS NOT NULL THEN
            PERFORM begin_probe(p_job, v_runs[1]);
        END IF;
        v_claimed := v_claimed || v_told;
        v_free := v_free - v_good;
    END LOOP;
    RETURN json_build_object(
        'runs', to_json(v_claimed), 'dropped', v_dropped, 'rank', v_safe_rank, 'key', encode(v_safe_key, 'hex'),
        'owner', json_build_object('job', p_job, 'lease', v_lease.id, 'host', v_lease.host, 'boot', v_lease.boot, 'runs_home', v_lease.runs_home),
        'facts', CASE WHEN cardinality(v_claimed) > 0 THEN (SELECT to_json(f) FROM job_facts(ARRAY[p_job]) f) END);
END $$;

-- Takes rows that the caller has locked: tasks for their runs, one each, the chunks that they read, and those that they
-- write, as many for each run.
CREATE FUNCTION opendataflow.mark_claimed(p_runs bigint[], p_fences bigint[], p_tasks tid[], p_reads tid[], p_writes tid[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE task w SET state = 'RUNNING', run = r.run, fence = r.fence, due_at = NULL, reason = NULL, blockers = 0,
                      stale = false
    FROM unnest(p_runs, p_fences, p_tasks) AS r(run, fence, at) WHERE w.ctid = r.at;
    UPDATE chunk c
    SET status = CASE WHEN l.run IS NULL THEN c.status ELSE 'RUNNING' END,
        run = coalesce(l.run, c.run), fence = coalesce(l.fence, c.fence),
        reason = CASE WHEN l.run IS NULL THEN c.reason END,
        readers = c.readers + (l.run IS NULL)::integer
    FROM (SELECT a AS at, NULL::bigint AS run, NULL::bigint AS fence FROM unnest(p_reads) AS a
          UNION ALL
          SELECT w.at, p_runs[w.run], p_fences[w.run]
          FROM (SELECT a.at, 1 + (a.place - 1) / (cardinality(p_writes) / cardinality(p_runs)) AS run
                FROM unnest(p_writes) WITH ORDINALITY AS a(at, place)) w) AS l
    WHERE c.ctid = l.at;
END $$;

-- What an engine has to know of a run that it takes over: an element of `runs` with `owner`, as a claim tells them.
CREATE FUNCTION opendataflow.run_for_takeover(p_run bigint) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'run', r.id, 'job', r.job, 'data_id', r.data_id, 'fence', r.fence, 'attempt', r.attempt, 'lease', r.lease,
        'host', r.host, 'boot', r.boot, 'runs_home', r.runs_home,
        'attempts', w.attempts, 'infrastructure_attempts', w.infrastructure_attempts,
        'bounds', (SELECT coalesce(jsonb_object_agg(c.dataset, c.bounds), '{}') FROM opendataflow.chunk c
                   WHERE c.dataset = ANY (r.reads || r.writes
                                          || ARRAY(SELECT i.dataset FROM opendataflow.job_input i WHERE i.job = r.job))
                     AND c.data_id = r.data_id AND c.bounds IS NOT NULL))
    FROM opendataflow.run r JOIN opendataflow.task w ON w.job = r.job AND w.data_id = r.data_id
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
    SELECT opendataflow.run_for_takeover(r.id),
           EXISTS (SELECT FROM opendataflow.lease l WHERE l.id = r.lease AND l.expires_at > clock_timestamp())
    FROM opendataflow.run r WHERE r.state = 'RUNNING' AND (r.lease = p_lease) = p_own ORDER BY r.id
$$;
