-- Lock order: 0 advisory locks of data sets, 1 lease, 2 job, 3 chunks by (data set, id), 4 tasks by (job, id),
-- 5 runs, history and breakers. Only claim() uses the order 2, 4, 3; after level 2 it does not wait.

-- Set the event, actor and reason that the triggers write into the history of this transaction.
-- Raise DF001 if the isolation level is not READ COMMITTED.
CREATE FUNCTION opendataflow.begin_event(p_event text, p_actor text, p_reason text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'a state can only be changed in a READ COMMITTED transaction, this one is %',
            upper(current_setting('transaction_isolation')) USING ERRCODE = 'DF001';
    END IF;
    PERFORM set_config('opendataflow.event', p_event, true),
            set_config('opendataflow.actor', coalesce(nullif(p_actor, ''), session_user), true),
            set_config('opendataflow.reason', coalesce(p_reason, ''), true);
END $$;

-- Raise DF002 if the data set does not exist.
CREATE FUNCTION opendataflow.require_dataset(p_dataset text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM dataset d WHERE d.id = p_dataset) THEN
        RAISE EXCEPTION 'there is no data set %', p_dataset USING ERRCODE = 'DF002';
    END IF;
END $$;

-- Raise DF002 if the job does not exist.
CREATE FUNCTION opendataflow.require_job(p_job text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM job j WHERE j.id = p_job) THEN
        RAISE EXCEPTION 'there is no job %', p_job USING ERRCODE = 'DF002';
    END IF;
END $$;

-- Lock data sets (level 0): shared to change chunks, exclusive to change the links of jobs.
CREATE FUNCTION opendataflow.lock_datasets(p_datasets text[], p_exclusive boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_key integer;
BEGIN
    FOR v_key IN SELECT DISTINCT hashtext(d) AS k FROM unnest(p_datasets) AS d ORDER BY k LOOP
        IF p_exclusive THEN
            PERFORM pg_advisory_xact_lock(20131, v_key);
        ELSE
            PERFORM pg_advisory_xact_lock_shared(20131, v_key);
        END IF;
    END LOOP;
END $$;

-- Return the data sets in which new ids of p_datasets can create rows.
-- These are all data sets of the jobs that read them, and so on downstream.
CREATE FUNCTION opendataflow.reachable_datasets(p_datasets text[]) RETURNS text[]
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE reached(dataset) AS (
        SELECT d FROM unnest(p_datasets) AS d
        UNION
        SELECT l.dataset FROM reached r
        CROSS JOIN opendataflow.jobs_with_source(r.dataset) j
        CROSS JOIN opendataflow.datasets_of(j.id) AS l(dataset)
    )
    SELECT coalesce(array_agg(dataset), '{}') FROM reached
$$;

-- Lock all reachable data sets, shared (level 0), before rows are created.
-- Raise a serialization failure if an apply has changed the reachable data sets before the locks were held.
CREATE FUNCTION opendataflow.lock_reachable(p_datasets text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_reach text[] := opendataflow.reachable_datasets(p_datasets);
BEGIN
    PERFORM opendataflow.lock_datasets(v_reach);
    IF NOT opendataflow.reachable_datasets(p_datasets) <@ v_reach THEN
        RAISE EXCEPTION 'the jobs of these data sets were changed at this moment: try again'
            USING ERRCODE = 'serialization_failure';
    END IF;
END $$;

-- Lock jobs (level 2). No claim of these jobs can proceed meanwhile.
CREATE FUNCTION opendataflow.lock_jobs(p_jobs text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM job j WHERE j.id = ANY (p_jobs) ORDER BY j.id FOR NO KEY UPDATE;
END $$;

-- Lock chunks (level 3), ordered by data set and id.
CREATE FUNCTION opendataflow.lock_chunks(p_datasets text[], p_ids text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM (SELECT DISTINCT * FROM unnest(p_datasets, p_ids) AS p(dataset, data_id) ORDER BY 1, 2) p
    CROSS JOIN LATERAL (SELECT FROM chunk c WHERE c.dataset = p.dataset AND c.data_id = p.data_id FOR UPDATE) c;
END $$;

-- Lock tasks (level 4), ordered by job and id.
-- No filter on the state: a task whose state is changing must be waited for, not skipped.
CREATE FUNCTION opendataflow.lock_tasks(p_jobs text[], p_ids text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM (SELECT DISTINCT * FROM unnest(p_jobs, p_ids) AS p(job, data_id) ORDER BY 1, 2) p
    CROSS JOIN LATERAL (SELECT FROM task t WHERE t.job = p.job AND t.data_id = p.data_id FOR UPDATE) t;
END $$;

-- Lock runs (level 5), ordered by id.
CREATE FUNCTION opendataflow.lock_runs(p_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM (SELECT DISTINCT i FROM unnest(p_ids) AS i ORDER BY 1) AS p(id)
    CROSS JOIN LATERAL (SELECT FROM run r WHERE r.id = p.id FOR UPDATE) r;
END $$;

-- Triggers: write the history, and refuse state changes that bypass the functions ----------------------------

-- Return the event of this transaction. Raise DF001 if begin_event() was not called.
CREATE FUNCTION opendataflow.require_event() RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_event text := nullif(current_setting('opendataflow.event', true), '');
BEGIN
    IF v_event IS NULL THEN
        RAISE EXCEPTION 'states are changed by the functions of schema opendataflow only, not by UPDATE'
            USING ERRCODE = 'DF001', HINT = 'use the commands of dataflow: see dataflow --help';
    END IF;
    RETURN v_event;
END $$;

-- Return the reason of a change that its own rows explain: an id was withdrawn, or has returned. Else null.
CREATE FUNCTION opendataflow.reason_of_id(p_before text, p_after text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_after = p_before THEN NULL WHEN p_after = 'RETIRED' THEN 'its id was withdrawn' WHEN p_before = 'RETIRED' THEN 'its id has returned' END
$$;

-- Trigger: write changed chunk states and versions into the history.
CREATE FUNCTION opendataflow.chunk_changed() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    v_event  text := nullif(current_setting('opendataflow.event', true), '');
    v_actor  text := current_setting('opendataflow.actor', true);
    v_reason text := nullif(current_setting('opendataflow.reason', true), '');
BEGIN
    INSERT INTO history (kind, owner, data_id, event, from_state, to_state, run, fence, actor, reason)
    SELECT 'chunk', n.dataset, n.data_id, coalesce(v_event, require_event()), o.status, n.status, n.run, n.fence, v_actor, coalesce(reason_of_id(o.status, n.status), v_reason, n.reason)
    FROM new_rows n JOIN old_rows o ON o.dataset = n.dataset AND o.data_id = n.data_id
    WHERE n.status <> o.status OR n.fence IS DISTINCT FROM o.fence;
    RETURN NULL;
END $$;
CREATE TRIGGER chunk_changed AFTER UPDATE ON opendataflow.chunk REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION opendataflow.chunk_changed();

-- Trigger: write changed task states into the history and adjust the counts (35_counts.sql).
-- Both use one join of the changed rows.
CREATE FUNCTION opendataflow.task_changed() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    v_event  text := nullif(current_setting('opendataflow.event', true), '');
    v_actor  text := current_setting('opendataflow.actor', true);
    v_reason text := nullif(current_setting('opendataflow.reason', true), '');
BEGIN
    WITH changed AS MATERIALIZED (
        SELECT n.*, o.state AS was, (o.state = 'DONE' AND o.stale)::integer AS was_stale, (n.state = 'DONE' AND n.stale)::integer AS is_stale
        FROM new_rows n JOIN old_rows o ON o.job = n.job AND o.data_id = n.data_id
        WHERE n.state <> o.state OR n.stale <> o.stale
    ), noted AS (
        INSERT INTO history (kind, owner, data_id, event, from_state, to_state, run, fence, actor, reason)
        SELECT 'task', c.job, c.data_id, coalesce(v_event, require_event()), c.was, c.state, c.run, c.fence, v_actor, coalesce(reason_of_id(c.was, c.state), v_reason, c.reason)
        FROM changed c WHERE c.state <> c.was
    )
    INSERT INTO task_count (job, state, tasks, stale)
    SELECT c.job, c.state, sum(c.tasks), sum(c.stale)
    FROM (SELECT job, state, 1 AS tasks, is_stale AS stale FROM changed
          UNION ALL SELECT job, was, -1, -was_stale FROM changed) c
    GROUP BY c.job, c.state HAVING sum(c.tasks) <> 0 OR sum(c.stale) <> 0;
    RETURN NULL;
END $$;
CREATE TRIGGER task_changed AFTER UPDATE ON opendataflow.task REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION opendataflow.task_changed();

-- Trigger: write deleted tasks into the history, with the state GONE.
CREATE FUNCTION opendataflow.task_gone() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    v_event text := nullif(current_setting('opendataflow.event', true), '');
    v_actor text := current_setting('opendataflow.actor', true);
BEGIN
    INSERT INTO history (kind, owner, data_id, event, from_state, to_state, run, fence, actor, reason)
    SELECT 'task', o.job, o.data_id, coalesce(v_event, require_event()), o.state, 'GONE', o.run, o.fence, v_actor, 'its id is not among those of the job any more'
    FROM old_rows o;
    RETURN NULL;
END $$;
CREATE TRIGGER task_gone AFTER DELETE ON opendataflow.task REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION opendataflow.task_gone();

-- Trigger: raise DF001, because the rows of this table are only added.
CREATE FUNCTION opendataflow.refuse_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of opendataflow.% is refused: rows are only added', TG_OP, TG_TABLE_NAME USING ERRCODE = 'DF001';
END $$;
CREATE TRIGGER history_is_append_only BEFORE UPDATE ON opendataflow.history
    FOR EACH STATEMENT EXECUTE FUNCTION opendataflow.refuse_change();
