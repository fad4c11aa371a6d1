-- Chunks of one data set that are set from outside: to PENDING, which a person must decide, to FAILED, or to RESUBMIT.

-- Set chunks to p_status, from any status but RUNNING; to RESUBMIT from DECLARED only. The results are as in 70_tasks.sql.
-- A READY or PENDING chunk keeps its version and run, so that it can be accepted again.
-- For other chunks p_publisher is recorded as the producer.
-- If a chunk becomes FAILED, the task that writes it becomes FAILED too and waits for a resubmit.
-- A DONE task whose id is out of scope stays DONE.
-- Locks levels 0, 3, 4. Raises DF001 for any other status and DF002 if the data set is unknown.
CREATE FUNCTION opendataflow.set_chunks(p_dataset text, p_ids text[], p_status text, p_actor text,
                                        p_reason text DEFAULT NULL, p_publisher text DEFAULT NULL)
RETURNS TABLE (data_id text, result text, state text, message text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_ids     text[] := ARRAY(SELECT DISTINCT i FROM unnest(p_ids) AS i);
    v_answers jsonb;
    v_done    text[];
    v_reason  text := coalesce(p_reason, format('set to %s from outside', p_status));
BEGIN
    IF p_status IS NULL OR p_status NOT IN ('PENDING', 'FAILED', 'RESUBMIT') THEN
        RAISE EXCEPTION 'chunks are set to PENDING, FAILED or RESUBMIT from outside, not to %', p_status USING ERRCODE = 'DF001';
    END IF;
    PERFORM begin_event('set', p_actor, p_reason), lock_dataset_chunks(p_dataset, v_ids);
    SELECT coalesce(jsonb_object_agg(c.data_id, CASE c.status
        WHEN p_status THEN answer('unchanged', format('it is %s already', p_status))
        WHEN 'RETIRED' THEN retired_answer(p_dataset, c.data_id)
        WHEN 'RUNNING' THEN answer('refused', format(
             'chunk %s of %s is being written by run %s: set it when the run has ended, or end it by dataflow cancel',
             c.data_id, p_dataset, c.run))
        ELSE CASE WHEN p_status <> 'RESUBMIT' OR c.status = 'DECLARED' THEN answer('done') ELSE answer('unchanged') END END), '{}')
    INTO v_answers
    FROM unnest(v_ids) AS i, chunk_of(p_dataset, i) AS c;
    v_done := ids_answered(v_answers, 'done');
    UPDATE chunk c
    SET status = p_status, held_status = NULL, reason = v_reason, fence = n.fence, run = n.run,
        publisher = CASE WHEN n.run IS NULL THEN coalesce(p_publisher, c.publisher) END
    FROM unnest(v_done) AS i
    CROSS JOIN chunk_of(p_dataset, i) AS was
    CROSS JOIN LATERAL (SELECT coalesce(was.held_status, was.status) IN ('READY', 'PENDING') AS there) v
    CROSS JOIN LATERAL (SELECT CASE WHEN v.there THEN was.fence END AS fence, CASE WHEN v.there THEN was.run END AS run) n
    WHERE c.ctid = was.at;
    IF p_status = 'FAILED' THEN
        UPDATE task t
        SET state = 'FAILED', blockers = 0, due_at = NULL, forced = false, stale = false, bounds_changed = false, incomplete = false,
            reason = format('chunk %s of %s was %s', t.data_id, bare_id(p_dataset), v_reason)
        FROM job_output o, unnest(v_done) AS i, task_of(o.job, i) AS was
        WHERE o.dataset = p_dataset AND t.ctid = was.at
          AND (was.state IN ('WAITING', 'QUEUED', 'RETRYING') OR (was.state = 'DONE' AND in_scope(was.job, was.data_id)));
    END IF;
    PERFORM update_dependents_of_chunks(p_dataset, v_ids);
    RETURN QUERY SELECT * FROM answers_of_chunks(p_dataset, v_ids, v_answers);
END $$;
