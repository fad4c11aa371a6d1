-- What people ask for chunks of one data set: resubmit, hold, release.

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
