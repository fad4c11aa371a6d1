-- Taking locks, always in this order: 0 advisory locks of data sets, 1 lease, 2 job, 3 chunks by (data set, id),
-- 4 tasks by (job, id), 5 runs, history and breakers. Only claim goes 2, 4, 3, and never waits after 2.

-- Says what is about to change states and for whom; the triggers write it into the history.
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

CREATE FUNCTION opendataflow.require_dataset(p_dataset text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM dataset d WHERE d.id = p_dataset) THEN
        RAISE EXCEPTION 'there is no data set %', p_dataset USING ERRCODE = 'DF002';
    END IF;
END $$;

CREATE FUNCTION opendataflow.require_job(p_job text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM job j WHERE j.id = p_job) THEN
        RAISE EXCEPTION 'there is no job %', p_job USING ERRCODE = 'DF002';
    END IF;
END $$;

-- Level 0: shared for changes of chunks, exclusive for changes of what jobs are linked to.
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

-- The data sets in which new ids of the given ones can make new rows: everything that jobs reading them are
-- linked to, and so on downwards.
CREATE FUNCTION opendataflow.reachable_datasets(p_datasets text[]) RETURNS text[]
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE reached(dataset) AS (
        SELECT d FROM unnest(p_datasets) AS d
        UNION
        SELECT l.dataset FROM reached r
        JOIN opendataflow.job_source s ON s.dataset = r.dataset
        JOIN opendataflow.job_dataset l ON l.job = s.job
    )
    SELECT coalesce(array_agg(dataset), '{}') FROM reached
$$;

-- Level 0 for changes that can make rows. What is reachable is read before the locks are held; where an apply
-- came in between, the caller has to begin again (a retryable error).
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

-- Level 2: no claim of these jobs passes.
CREATE FUNCTION opendataflow.lock_jobs(p_jobs text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM job j WHERE j.id = ANY (p_jobs) ORDER BY j.id FOR NO KEY UPDATE;
END $$;

-- Level 3.
CREATE FUNCTION opendataflow.lock_chunks(p_datasets text[], p_ids text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM (SELECT DISTINCT * FROM unnest(p_datasets, p_ids) AS p(dataset, data_id) ORDER BY 1, 2) p
    CROSS JOIN LATERAL (SELECT FROM chunk c WHERE c.dataset = p.dataset AND c.data_id = p.data_id FOR UPDATE) c;
END $$;

-- Level 4. No filter on the state: a task whose state is changing right now must be waited for, not passed by.
CREATE FUNCTION opendataflow.lock_tasks(p_jobs text[], p_ids text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM (SELECT DISTINCT * FROM unnest(p_jobs, p_ids) AS p(job, data_id) ORDER BY 1, 2) p
    CROSS JOIN LATERAL (SELECT FROM task w WHERE w.job = p.job AND w.data_id = p.data_id FOR UPDATE) w;
END $$;

-- Level 5.
CREATE FUNCTION opendataflow.lock_runs(p_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM (SELECT DISTINCT i FROM unnest(p_ids) AS i ORDER BY 1) AS p(id)
    CROSS JOIN LATERAL (SELECT FROM run r WHERE r.id = p.id FOR UPDATE) r;
END $$;

-- Triggers: history, and no change of a state around the functions -------------------------------------------

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

CREATE FUNCTION opendataflow.chunk_changed() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    v_event  text := nullif(current_setting('opendataflow.event', true), '');
    v_actor  text := current_setting('opendataflow.actor', true);
    v_reason text := nullif(current_setting('opendataflow.reason', true), '');
BEGIN
    INSERT INTO history (kind, owner, data_id, event, from_state, to_state, run, fence, actor, reason)
    SELECT 'chunk', n.dataset, n.data_id, coalesce(v_event, require_event()), o.status, n.status, n.run, n.fence, v_actor, coalesce(v_reason, n.reason)
    FROM new_rows n JOIN old_rows o ON o.dataset = n.dataset AND o.data_id = n.data_id
    WHERE n.status <> o.status OR n.fence IS DISTINCT FROM o.fence;
    RETURN NULL;
END $$;
CREATE TRIGGER chunk_changed AFTER UPDATE ON opendataflow.chunk REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION opendataflow.chunk_changed();

-- Also counts the tasks that are in another state now (35_counts.sql): one look at the changed rows serves both.
CREATE FUNCTION opendataflow.task_changed() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    v_event  text := nullif(current_setting('opendataflow.event', true), '');
    v_actor  text := current_setting('opendataflow.actor', true);
    v_reason text := nullif(current_setting('opendataflow.reason', true), '');
BEGIN
    WITH changed AS MATERIALIZED (
        SELECT n.*, o.state AS was FROM new_rows n JOIN old_rows o ON o.job = n.job AND o.data_id = n.data_id WHERE n.state <> o.state
    ), noted AS (
        INSERT INTO history (kind, owner, data_id, event, from_state, to_state, run, fence, actor, reason)
        SELECT 'task', c.job, c.data_id, coalesce(v_event, require_event()), c.was, c.state, c.run, c.fence, v_actor, coalesce(v_reason, c.reason)
        FROM changed c
    )
    INSERT INTO task_count (job, state, tasks)
    SELECT c.job, c.state, sum(c.tasks)
    FROM (SELECT job, state, 1 AS tasks FROM changed UNION ALL SELECT job, was, -1 FROM changed) c
    GROUP BY c.job, c.state HAVING sum(c.tasks) <> 0;
    RETURN NULL;
END $$;
CREATE TRIGGER task_changed AFTER UPDATE ON opendataflow.task REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION opendataflow.task_changed();

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

CREATE FUNCTION opendataflow.refuse_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of opendataflow.% is refused: rows are only added', TG_OP, TG_TABLE_NAME USING ERRCODE = 'DF001';
END $$;
CREATE TRIGGER history_is_append_only BEFORE UPDATE ON opendataflow.history
    FOR EACH STATEMENT EXECUTE FUNCTION opendataflow.refuse_change();
