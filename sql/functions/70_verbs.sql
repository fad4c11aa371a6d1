-- What people ask for: resubmit, hold, release. Each verb takes ids of one job or one data set and returns one row for
-- each id: result is done, unchanged, remembered, refused or unknown; message says why where it is not done.
-- A caller that wants all or nothing rolls back when a row is refused or unknown.

-- Level 3 and 4 for works of one job: the chunks that it writes, the works that depend on them, the works themselves.
CREATE FUNCTION opendataflow.lock_outputs(p_job text, p_ids text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_outputs  text[];
    v_datasets text[];
    v_ids      text[];
BEGIN
    IF NOT EXISTS (SELECT FROM job j WHERE j.id = p_job) THEN
        RAISE EXCEPTION 'there is no job %', p_job USING ERRCODE = 'DF002';
    END IF;
    v_outputs := ARRAY(SELECT o.dataset FROM job_output o WHERE o.job = p_job ORDER BY o.dataset);
    PERFORM lock_datasets(v_outputs);
    IF v_outputs <> ARRAY(SELECT o.dataset FROM job_output o WHERE o.job = p_job ORDER BY o.dataset) THEN
        RAISE EXCEPTION 'job % was changed at this moment: try again', p_job USING ERRCODE = 'serialization_failure';
    END IF;
    SELECT array_agg(o.dataset), array_agg(i) INTO v_datasets, v_ids
    FROM job_output o, unnest(p_ids) AS i WHERE o.job = p_job;
    PERFORM lock_chunks(v_datasets, v_ids);
    PERFORM lock_works(array_agg(x.job), array_agg(x.data_id))
    FROM (SELECT p_job AS job, i AS data_id FROM unnest(p_ids) AS i
          UNION SELECT a.job, a.data_id FROM affected(v_datasets, v_ids) a) x;
END $$;

-- Counts anew what depends on the outputs of works of one job, and tells engines.
CREATE FUNCTION opendataflow.settle_outputs(p_job text, p_ids text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM announce(recount(array_agg(x.job), array_agg(x.data_id)))
    FROM (SELECT p_job AS job, i AS data_id FROM unnest(p_ids) AS i
          UNION SELECT a.job, a.data_id
          FROM (SELECT array_agg(o.dataset) AS datasets, array_agg(i) AS ids
                FROM job_output o, unnest(p_ids) AS i WHERE o.job = p_job) AS c, affected(c.datasets, c.ids) a) x;
END $$;

-- Re-opens works whose rows and chunks are locked: outputs become RESUBMIT together (one under HOLD remembers it), the
-- work is open again with new budgets.
CREATE FUNCTION opendataflow.reopen(p_job text, p_ids text[], p_reason text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE chunk c
    SET status = CASE WHEN c.status = 'HOLD' THEN 'HOLD' ELSE 'RESUBMIT' END,
        held_status = CASE WHEN c.status = 'HOLD' THEN 'RESUBMIT' END,
        reason = coalesce(p_reason, 'resubmitted')
    FROM job_output o
    WHERE o.job = p_job AND c.dataset = o.dataset AND c.data_id = ANY (p_ids)
      AND coalesce(c.held_status, c.status) IN ('READY', 'PENDING', 'FAILED');
    UPDATE work w
    SET state = 'WAITING', blockers = 1, rank = 1, attempts = 0, infrastructure_attempts = 0, due_at = NULL,
        held_from = NULL, again = false, stale = false, reason = coalesce(p_reason, 'resubmitted')
    WHERE w.job = p_job AND w.data_id = ANY (p_ids);
END $$;

-- Asks for works again. RUNNING goes on and is opened again at its end; HELD remembers it until its release.
CREATE FUNCTION opendataflow.resubmit(p_job text, p_ids text[], p_actor text, p_reason text DEFAULT NULL)
RETURNS TABLE (data_id text, result text, state text, message text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_ids  text[] := ARRAY(SELECT DISTINCT i FROM unnest(p_ids) AS i);
    v_rows jsonb;
BEGIN
    PERFORM begin_event('resubmit', p_actor, p_reason), lock_outputs(p_job, v_ids);
    SELECT coalesce(jsonb_object_agg(i, CASE
               WHEN w.state IS NULL THEN 'unknown'
               WHEN w.state = 'SKIPPED' OR (w.state = 'DONE' AND NOT in_scope(p_job, i)) THEN 'refused'
               WHEN w.state IN ('RUNNING', 'HELD') THEN 'remembered'
               WHEN w.state IN ('WAITING', 'READY') AND NOT EXISTS (
                    SELECT FROM job_output o
                    CROSS JOIN LATERAL (SELECT * FROM chunk c
                                        WHERE c.dataset = o.dataset AND c.data_id = w.data_id OFFSET 0) c
                    WHERE o.job = p_job AND coalesce(c.held_status, c.status) IN ('READY', 'PENDING', 'FAILED')) THEN 'unchanged'
               ELSE 'done' END), '{}') INTO v_rows
    FROM unnest(v_ids) AS i LEFT JOIN work w ON w.job = p_job AND w.data_id = i;
    UPDATE work w SET again = true WHERE w.job = p_job AND v_rows ->> w.data_id = 'remembered' AND w.data_id = ANY (v_ids);
    PERFORM reopen(p_job, ARRAY(SELECT i FROM unnest(v_ids) AS i WHERE v_rows ->> i = 'done'), p_reason);
    PERFORM settle_outputs(p_job, v_ids);
    RETURN QUERY
    SELECT i, v_rows ->> i, w.state, CASE v_rows ->> i
        WHEN 'unknown' THEN format('job %s has no work for %s', p_job, i)
        WHEN 'refused' THEN CASE w.state
            WHEN 'SKIPPED' THEN format('%s of job %s is skipped: release it first', i, p_job)
            ELSE format('%s is not among the ids of job %s any more: apply the job with data sets that have it', i, p_job) END
        WHEN 'remembered' THEN CASE w.state WHEN 'RUNNING' THEN 'it is running: it runs again after its end'
                                            ELSE 'it is held: it runs again after its release' END
        WHEN 'unchanged' THEN 'it has not run yet: there is nothing to do again' END
    FROM unnest(v_ids) AS i LEFT JOIN work w ON w.job = p_job AND w.data_id = i
    ORDER BY sort_key(i);
END $$;

-- Asks for chunks of a data set again: through the work that makes them, or, where there is none, until they are
-- published again.
CREATE FUNCTION opendataflow.resubmit_chunks(p_dataset text, p_ids text[], p_actor text, p_reason text DEFAULT NULL)
RETURNS TABLE (data_id text, result text, state text, message text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_job  text;
    v_ids  text[] := ARRAY(SELECT DISTINCT i FROM unnest(p_ids) AS i);
    v_made text[];
    v_done text[];
BEGIN
    PERFORM begin_event('resubmit', p_actor, p_reason), require_dataset(p_dataset);
    -- The producer is read before its locks are held: they must be taken in order, all outputs at once.
    SELECT o.job INTO v_job FROM job_output o WHERE o.dataset = p_dataset;
    IF v_job IS NULL THEN
        PERFORM lock_dataset_chunks(p_dataset, v_ids);
    ELSE
        PERFORM lock_outputs(v_job, v_ids);
    END IF;
    IF v_job IS DISTINCT FROM (SELECT o.job FROM job_output o WHERE o.dataset = p_dataset) THEN
        RAISE EXCEPTION 'data set % has got another producer at this moment: try again', p_dataset
            USING ERRCODE = 'serialization_failure';
    END IF;
    v_made := ARRAY(SELECT w.data_id FROM work w WHERE w.job = v_job AND w.data_id = ANY (v_ids));
    IF cardinality(v_made) > 0 THEN
        RETURN QUERY SELECT * FROM resubmit(v_job, v_made, p_actor, p_reason);
    END IF;

    v_ids := ARRAY(SELECT i FROM unnest(v_ids) AS i WHERE i <> ALL (v_made));
    WITH moved AS (
        UPDATE chunk c
        SET status = CASE WHEN c.status = 'HOLD' THEN 'HOLD' ELSE 'RESUBMIT' END,
            held_status = CASE WHEN c.status = 'HOLD' THEN 'RESUBMIT' END,
            reason = coalesce(p_reason, 'resubmitted: waits to be published again')
        WHERE c.dataset = p_dataset AND c.data_id = ANY (v_ids)
          AND coalesce(c.held_status, c.status) IN ('READY', 'PENDING', 'FAILED')
        RETURNING c.data_id
    ) SELECT coalesce(array_agg(data_id), '{}') INTO v_done FROM moved;
    PERFORM settle_chunks(p_dataset, v_ids);
    RETURN QUERY
    SELECT i, CASE WHEN c.status IS NULL THEN 'unknown' WHEN i <> ALL (v_done) THEN 'unchanged'
                   WHEN c.status = 'HOLD' THEN 'remembered' ELSE 'done' END,
           c.status,
           CASE WHEN c.status IS NULL THEN format('data set %s has no chunk %s', p_dataset, i)
                WHEN i <> ALL (v_done) THEN format('it is %s: there is nothing to do again', c.status)
                WHEN c.status = 'HOLD' THEN 'it is held: it waits to be published again after its release' END
    FROM unnest(v_ids) AS i LEFT JOIN chunk c ON c.dataset = p_dataset AND c.data_id = i
    ORDER BY sort_key(i);
END $$;

-- Level 3 and 4 for chunks of one data set.
CREATE FUNCTION opendataflow.lock_dataset_chunks(p_dataset text, p_ids text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_datasets text[] := array_fill(p_dataset, ARRAY[cardinality(p_ids)]);
BEGIN
    PERFORM require_dataset(p_dataset), lock_datasets(ARRAY[p_dataset]), lock_chunks(v_datasets, p_ids);
    PERFORM lock_works(array_agg(a.job), array_agg(a.data_id)) FROM affected(v_datasets, p_ids) a;
END $$;

-- Counts anew what depends on chunks of one data set, and tells engines.
CREATE FUNCTION opendataflow.settle_chunks(p_dataset text, p_ids text[]) RETURNS void
LANGUAGE sql SET search_path = opendataflow, pg_temp AS $$
    SELECT announce(recount(array_agg(a.job), array_agg(a.data_id)))
    FROM affected(array_fill(p_dataset, ARRAY[cardinality(p_ids)]), p_ids) a
$$;

-- Keeps works from running: WAITING, READY, RETRY and FAILED become HELD.
CREATE FUNCTION opendataflow.hold(p_job text, p_ids text[], p_actor text, p_reason text DEFAULT NULL)
RETURNS TABLE (data_id text, result text, state text, message text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_ids  text[] := ARRAY(SELECT DISTINCT i FROM unnest(p_ids) AS i);
    v_done text[];
BEGIN
    PERFORM begin_event('hold', p_actor, p_reason), lock_outputs(p_job, v_ids);
    WITH moved AS (
        UPDATE work w SET state = 'HELD', held_from = w.state, blockers = 0, reason = coalesce(p_reason, w.reason)
        WHERE w.job = p_job AND w.data_id = ANY (v_ids) AND w.state IN ('WAITING', 'READY', 'RETRY', 'FAILED')
        RETURNING w.data_id
    ) SELECT coalesce(array_agg(data_id), '{}') INTO v_done FROM moved;
    RETURN QUERY
    SELECT i, CASE WHEN w.state IS NULL THEN 'unknown' WHEN i = ANY (v_done) THEN 'done'
                   WHEN w.state = 'HELD' THEN 'unchanged' ELSE 'refused' END,
           w.state,
           CASE WHEN w.state IS NULL THEN format('job %s has no work for %s', p_job, i)
                WHEN i = ANY (v_done) THEN NULL
                WHEN w.state = 'HELD' THEN 'it is held already'
                WHEN w.state = 'RUNNING' THEN format('%s of job %s is running: hold it when the run has ended', i, p_job)
                ELSE format('%s of job %s is %s: only work that is still to do can be held', i, p_job, w.state) END
    FROM unnest(v_ids) AS i LEFT JOIN work w ON w.job = p_job AND w.data_id = i
    ORDER BY sort_key(i);
END $$;

-- HELD and SKIPPED works become what they were, with what was asked meanwhile.
CREATE FUNCTION opendataflow.release(p_job text, p_ids text[], p_actor text, p_reason text DEFAULT NULL)
RETURNS TABLE (data_id text, result text, state text, message text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_ids   text[] := ARRAY(SELECT DISTINCT i FROM unnest(p_ids) AS i);
    v_again text[];
    v_done  text[];
BEGIN
    PERFORM begin_event('release', p_actor, p_reason), lock_outputs(p_job, v_ids);
    v_again := ARRAY(SELECT w.data_id FROM work w WHERE w.job = p_job AND w.data_id = ANY (v_ids) AND w.state = 'HELD' AND w.again);
    WITH moved AS (
        UPDATE work w
        SET state = CASE WHEN w.held_from = 'READY' THEN 'WAITING' ELSE w.held_from END,
            blockers = CASE WHEN w.held_from IN ('READY', 'WAITING') THEN 1 ELSE 0 END,
            held_from = NULL, again = false,
            reason = CASE WHEN w.held_from IN ('RETRY', 'FAILED')
                          THEN coalesce((SELECT r.message FROM run r WHERE r.id = w.run), w.reason) END
        WHERE w.job = p_job AND w.data_id = ANY (v_ids) AND w.state IN ('HELD', 'SKIPPED')
        RETURNING w.data_id
    ) SELECT coalesce(array_agg(data_id), '{}') INTO v_done FROM moved;
    PERFORM reopen(p_job, v_again, p_reason), settle_outputs(p_job, v_ids);
    RETURN QUERY
    SELECT i, CASE WHEN w.state IS NULL THEN 'unknown' WHEN i = ANY (v_done) THEN 'done' ELSE 'unchanged' END,
           w.state,
           CASE WHEN w.state IS NULL THEN format('job %s has no work for %s', p_job, i)
                WHEN i = ANY (v_done) THEN NULL
                ELSE format('it is %s, not held', w.state) END
    FROM unnest(v_ids) AS i LEFT JOIN work w ON w.job = p_job AND w.data_id = i
    ORDER BY sort_key(i);
END $$;

-- Keeps chunks from being read and written: any status but RUNNING becomes HOLD and is remembered.
CREATE FUNCTION opendataflow.hold_chunks(p_dataset text, p_ids text[], p_actor text, p_reason text DEFAULT NULL)
RETURNS TABLE (data_id text, result text, state text, message text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_ids  text[] := ARRAY(SELECT DISTINCT i FROM unnest(p_ids) AS i);
    v_done text[];
BEGIN
    PERFORM begin_event('hold', p_actor, p_reason), lock_dataset_chunks(p_dataset, v_ids);
    WITH moved AS (
        UPDATE chunk c SET status = 'HOLD', held_status = c.status, reason = coalesce(p_reason, c.reason)
        WHERE c.dataset = p_dataset AND c.data_id = ANY (v_ids) AND c.status NOT IN ('RUNNING', 'HOLD')
        RETURNING c.data_id
    ) SELECT coalesce(array_agg(data_id), '{}') INTO v_done FROM moved;
    PERFORM settle_chunks(p_dataset, v_ids);
    RETURN QUERY
    SELECT i, CASE WHEN c.status IS NULL THEN 'unknown' WHEN i = ANY (v_done) THEN 'done'
                   WHEN c.status = 'HOLD' THEN 'unchanged' ELSE 'refused' END,
           c.status,
           CASE WHEN c.status IS NULL THEN format('data set %s has no chunk %s', p_dataset, i)
                WHEN i = ANY (v_done) THEN NULL
                WHEN c.status = 'HOLD' THEN 'it is held already'
                ELSE format('chunk %s of %s is being written by run %s: hold it when the run has ended', i, p_dataset, c.run) END
    FROM unnest(v_ids) AS i LEFT JOIN chunk c ON c.dataset = p_dataset AND c.data_id = i
    ORDER BY sort_key(i);
END $$;

-- HOLD chunks become what they were, with what was asked meanwhile.
CREATE FUNCTION opendataflow.release_chunks(p_dataset text, p_ids text[], p_actor text, p_reason text DEFAULT NULL)
RETURNS TABLE (data_id text, result text, state text, message text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_ids  text[] := ARRAY(SELECT DISTINCT i FROM unnest(p_ids) AS i);
    v_done text[];
BEGIN
    PERFORM begin_event('release', p_actor, p_reason), lock_dataset_chunks(p_dataset, v_ids);
    WITH moved AS (
        UPDATE chunk c SET status = c.held_status, held_status = NULL,
                           reason = CASE WHEN c.held_status IN ('FAILED', 'PENDING')
                                         THEN coalesce((SELECT r.message FROM run r WHERE r.id = c.run), c.reason) END
        WHERE c.dataset = p_dataset AND c.data_id = ANY (v_ids) AND c.status = 'HOLD'
        RETURNING c.data_id
    ) SELECT coalesce(array_agg(data_id), '{}') INTO v_done FROM moved;
    -- A producer that came while the chunk was held has nothing to do now.
    PERFORM finish_published(array_agg(a.job), array_agg(a.data_id))
    FROM affected(array_fill(p_dataset, ARRAY[cardinality(v_done)]), v_done) a;
    PERFORM settle_chunks(p_dataset, v_ids);
    RETURN QUERY
    SELECT i, CASE WHEN c.status IS NULL THEN 'unknown' WHEN i = ANY (v_done) THEN 'done' ELSE 'unchanged' END,
           c.status,
           CASE WHEN c.status IS NULL THEN format('data set %s has no chunk %s', p_dataset, i)
                WHEN i = ANY (v_done) THEN NULL
                ELSE format('it is %s, not held', c.status) END
    FROM unnest(v_ids) AS i LEFT JOIN chunk c ON c.dataset = p_dataset AND c.data_id = i
    ORDER BY sort_key(i);
END $$;
