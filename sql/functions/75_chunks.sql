-- Commands for chunks of one data set: resubmit, hold, release, accept, reject. The results are as in 70_tasks.sql.
-- Each command locks levels 0, 3, 4 and raises DF002 if the data set is unknown.

-- Resubmit chunks of a data set: through the tasks that write them, or, without a task, until they are published again.
-- Raise a serialization failure if the data set has got another producer meanwhile.
CREATE FUNCTION opendataflow.resubmit_chunks(p_dataset text, p_ids text[], p_actor text, p_reason text DEFAULT NULL)
RETURNS TABLE (data_id text, result text, state text, message text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_job       text;
    v_ids       text[] := ARRAY(SELECT DISTINCT i FROM unnest(p_ids) AS i);
    v_with_task text[];
    v_done      text[];
BEGIN
    PERFORM begin_event('resubmit', p_actor, p_reason), require_dataset(p_dataset);
    -- Read the producer before its locks are held: all outputs of one job must be locked in order, at once.
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
    v_with_task := ARRAY(SELECT i FROM unnest(v_ids) AS i, task_of(v_job, i));
    IF cardinality(v_with_task) > 0 THEN
        RETURN QUERY SELECT * FROM resubmit(v_job, v_with_task, p_actor, p_reason);
    END IF;

    v_ids := ARRAY(SELECT i FROM unnest(v_ids) AS i WHERE i <> ALL (v_with_task));
    WITH moved AS (
        UPDATE chunk c
        SET status = CASE WHEN c.status = 'HOLD' THEN 'HOLD' ELSE 'RESUBMIT' END,
            held_status = CASE WHEN c.status = 'HOLD' THEN 'RESUBMIT' END,
            reason = coalesce(p_reason, 'resubmitted: waits to be published again')
        FROM unnest(v_ids) AS i, chunk_of(p_dataset, i) AS was
        WHERE c.ctid = was.at AND coalesce(was.held_status, was.status) IN ('READY', 'PENDING', 'FAILED')
        RETURNING c.data_id
    ) SELECT coalesce(array_agg(data_id), '{}') INTO v_done FROM moved;
    PERFORM update_dependents_of_chunks(p_dataset, v_ids);
    RETURN QUERY
    SELECT i, CASE WHEN c.status IS NULL THEN 'unknown' WHEN i <> ALL (v_done) THEN 'unchanged'
                   WHEN c.status = 'HOLD' THEN 'remembered' ELSE 'done' END,
           c.status,
           CASE WHEN c.status IS NULL THEN format('data set %s has no chunk %s', p_dataset, i)
                WHEN i <> ALL (v_done) THEN format('it is %s: there is nothing to do again', c.status)
                WHEN c.status = 'HOLD' THEN 'it is held: it waits to be published again after its release' END
    FROM unnest(v_ids) AS i LEFT JOIN chunk_of(p_dataset, i) AS c ON true
    ORDER BY sort_key(i);
END $$;

-- Lock chunks of one data set and the tasks that depend on them (levels 0, 3, 4). Raise DF002 if it is unknown.
CREATE FUNCTION opendataflow.lock_dataset_chunks(p_dataset text, p_ids text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_datasets text[] := array_fill(p_dataset, ARRAY[cardinality(p_ids)]);
BEGIN
    PERFORM require_dataset(p_dataset), lock_datasets(ARRAY[p_dataset]), lock_chunks(v_datasets, p_ids);
    PERFORM lock_tasks(array_agg(a.job), array_agg(a.data_id)) FROM affected_tasks(v_datasets, p_ids) a;
END $$;

-- Recount the blockers of tasks that depend on chunks of one data set, and notify engines.
CREATE FUNCTION opendataflow.update_dependents_of_chunks(p_dataset text, p_ids text[]) RETURNS void
LANGUAGE sql SET search_path = opendataflow, pg_temp AS $$
    SELECT mark_producers_incomplete(array_fill(p_dataset, ARRAY[cardinality(p_ids)]), p_ids);
    SELECT notify_engines(recount_blockers(array_agg(a.job), array_agg(a.data_id)))
    FROM affected_tasks(array_fill(p_dataset, ARRAY[cardinality(p_ids)]), p_ids) a
$$;

-- Return the refusal for a retired chunk.
CREATE FUNCTION opendataflow.retired_answer(p_dataset text, p_id text) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT opendataflow.answer('refused', format(
        'chunk %s of %s is retired: add it to the chunk source of the data set, or publish it', p_id, p_dataset))
$$;

-- Return the rows of a command in natural order. p_answers: the result of each id that has a chunk.
CREATE FUNCTION opendataflow.answers_of_chunks(p_dataset text, p_ids text[], p_answers jsonb)
RETURNS TABLE (data_id text, result text, state text, message text)
LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY
    SELECT i, coalesce(p_answers -> i ->> 'result', 'unknown'), c.status,
           CASE WHEN p_answers ? i THEN p_answers -> i ->> 'message' ELSE format('data set %s has no chunk %s', p_dataset, i) END
    FROM unnest(p_ids) AS i LEFT JOIN chunk_of(p_dataset, i) AS c ON true
    ORDER BY sort_key(i);
END $$;

-- Hold chunks: no task reads or writes them. Any status but RUNNING becomes HOLD, and a release restores it.
CREATE FUNCTION opendataflow.hold_chunks(p_dataset text, p_ids text[], p_actor text, p_reason text DEFAULT NULL)
RETURNS TABLE (data_id text, result text, state text, message text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_ids     text[] := ARRAY(SELECT DISTINCT i FROM unnest(p_ids) AS i);
    v_answers jsonb;
BEGIN
    PERFORM begin_event('hold', p_actor, p_reason);
    IF p_dataset = 'today' THEN
        PERFORM declare_days(v_ids);
    END IF;
    PERFORM lock_dataset_chunks(p_dataset, v_ids);
    SELECT coalesce(jsonb_object_agg(c.data_id, CASE c.status
        WHEN 'HOLD' THEN answer('unchanged', 'it is held already')
        WHEN 'RETIRED' THEN retired_answer(p_dataset, c.data_id)
        WHEN 'RUNNING' THEN answer('refused', format('chunk %s of %s is being written by run %s: hold it when the run has ended',
                                                     c.data_id, p_dataset, c.run))
        ELSE answer('done') END), '{}') INTO v_answers
    FROM unnest(v_ids) AS i, chunk_of(p_dataset, i) AS c;
    UPDATE chunk c SET status = 'HOLD', held_status = c.status, reason = coalesce(p_reason, c.reason)
    FROM unnest(ids_answered(v_answers, 'done')) AS i, chunk_of(p_dataset, i) AS was WHERE c.ctid = was.at;
    PERFORM update_dependents_of_chunks(p_dataset, v_ids);
    RETURN QUERY SELECT * FROM answers_of_chunks(p_dataset, v_ids, v_answers);
END $$;

-- Release chunks from HOLD: restore their status, and apply remembered requests.
CREATE FUNCTION opendataflow.release_chunks(p_dataset text, p_ids text[], p_actor text, p_reason text DEFAULT NULL)
RETURNS TABLE (data_id text, result text, state text, message text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_ids     text[] := ARRAY(SELECT DISTINCT i FROM unnest(p_ids) AS i);
    v_answers jsonb;
BEGIN
    PERFORM begin_event('release', p_actor, p_reason), lock_dataset_chunks(p_dataset, v_ids);
    SELECT coalesce(jsonb_object_agg(c.data_id, CASE c.status
        WHEN 'HOLD' THEN answer('done')
        ELSE answer('unchanged', format('it is %s, not held', c.status)) END), '{}') INTO v_answers
    FROM unnest(v_ids) AS i, chunk_of(p_dataset, i) AS c;
    UPDATE chunk c
    SET status = c.held_status, held_status = NULL,
        reason = CASE WHEN c.held_status IN ('FAILED', 'PENDING')
                      THEN coalesce((SELECT r.message FROM run_of(c.run) r WHERE r.state <> 'SUCCEEDED'), c.reason) END
    FROM unnest(ids_answered(v_answers, 'done')) AS i, chunk_of(p_dataset, i) AS was WHERE c.ctid = was.at;
    -- If a released chunk is READY, its producer has nothing left to do.
    PERFORM finish_producers(p_dataset, ids_answered(v_answers, 'done')),
            mark_stale(array_fill(p_dataset, ARRAY[cardinality(v_ids)]), v_ids), update_dependents_of_chunks(p_dataset, v_ids);
    RETURN QUERY SELECT * FROM answers_of_chunks(p_dataset, v_ids, v_answers);
END $$;

-- Set open tasks that write chunks of one data set to DONE if these chunks are READY.
CREATE FUNCTION opendataflow.finish_producers(p_dataset text, p_ids text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM finish_published(array_agg(o.job), array_agg(i)) FROM job_output o, unnest(p_ids) AS i WHERE o.dataset = p_dataset;
END $$;

-- Return the results of accept and reject: only PENDING chunks can be decided. p_participle: the word for the message.
CREATE FUNCTION opendataflow.answers_for_pending(p_dataset text, p_ids text[], p_participle text) RETURNS jsonb
LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT coalesce(jsonb_object_agg(c.data_id, CASE
        WHEN c.status = 'PENDING' THEN answer('done')
        WHEN c.held_status = 'PENDING' THEN answer('refused', format('chunk %s of %s is held: release it first', c.data_id, p_dataset))
        ELSE answer('refused', format('chunk %s of %s is %s: only PENDING ones can be %s', c.data_id, p_dataset, c.status, p_participle))
        END), '{}')
        FROM unnest(p_ids) AS i, chunk_of(p_dataset, i) AS c);
END $$;

-- Accept PENDING chunks: set them to READY, in the version that their run wrote.
CREATE FUNCTION opendataflow.accept(p_dataset text, p_ids text[], p_actor text, p_reason text DEFAULT NULL)
RETURNS TABLE (data_id text, result text, state text, message text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_ids      text[] := ARRAY(SELECT DISTINCT i FROM unnest(p_ids) AS i);
    v_answers  jsonb;
    v_accepted text[];
BEGIN
    PERFORM begin_event('accept', p_actor, p_reason), lock_dataset_chunks(p_dataset, v_ids);
    v_answers := answers_for_pending(p_dataset, v_ids, 'accepted');
    v_accepted := ids_answered(v_answers, 'done');
    UPDATE chunk c
    SET status = 'READY', fence = coalesce(c.fence, next_fence()), published_at = clock_timestamp(), reason = p_reason
    FROM unnest(v_accepted) AS i, chunk_of(p_dataset, i) AS was WHERE c.ctid = was.at;
    PERFORM finish_producers(p_dataset, v_accepted), mark_stale(array_fill(p_dataset, ARRAY[cardinality(v_accepted)]), v_accepted),
            update_dependents_of_chunks(p_dataset, v_ids);
    RETURN QUERY SELECT * FROM answers_of_chunks(p_dataset, v_ids, v_answers);
END $$;

-- Reject PENDING chunks: set them to FAILED, with the tasks that wrote them if the ids are still in scope.
CREATE FUNCTION opendataflow.reject(p_dataset text, p_ids text[], p_actor text, p_reason text DEFAULT NULL)
RETURNS TABLE (data_id text, result text, state text, message text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_ids      text[] := ARRAY(SELECT DISTINCT i FROM unnest(p_ids) AS i);
    v_answers  jsonb;
    v_rejected text[];
    v_reason   text := 'rejected' || coalesce(': ' || p_reason, '');
BEGIN
    PERFORM begin_event('reject', p_actor, p_reason), lock_dataset_chunks(p_dataset, v_ids);
    v_answers := answers_for_pending(p_dataset, v_ids, 'rejected');
    v_rejected := ids_answered(v_answers, 'done');
    UPDATE chunk c SET status = 'FAILED', reason = v_reason
    FROM unnest(v_rejected) AS i, chunk_of(p_dataset, i) AS was WHERE c.ctid = was.at;
    UPDATE task t SET state = 'FAILED', stale = false, bounds_changed = false, incomplete = false, reason = format('chunk %s of %s was %s', t.data_id, bare_id(p_dataset), v_reason)
    FROM job_output o, unnest(v_rejected) AS i, task_of(o.job, i) AS was
    WHERE o.dataset = p_dataset AND t.ctid = was.at AND was.state = 'DONE' AND in_scope(was.job, was.data_id)
      AND was.run = (SELECT c.run FROM chunk_of(p_dataset, i) c);
    PERFORM update_dependents_of_chunks(p_dataset, v_ids);
    RETURN QUERY SELECT * FROM answers_of_chunks(p_dataset, v_ids, v_answers);
END $$;
