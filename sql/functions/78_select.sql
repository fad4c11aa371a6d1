-- Selection of ids for a command: from..to in natural order, both included, and only some states. Null is no limit.
-- Retired chunks and tasks are selected only by their state.
-- p_stale: only what a resubmit can make again from newer versions.
-- INCOMPLETE selects DONE tasks with an output that was never made.
-- A command that follows in the same transaction checks the states again.

-- Return the selected data ids of a job's tasks. Raise DF002 if the job is unknown.
CREATE FUNCTION opendataflow.select_tasks(p_job text, p_from text, p_to text, p_states text[], p_stale boolean DEFAULT false)
RETURNS TABLE (data_id text)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM require_job(p_job);
    RETURN QUERY
    SELECT t.data_id FROM task t
    WHERE t.job = p_job AND CASE WHEN p_states IS NULL THEN t.state <> 'RETIRED'
                               ELSE t.state = ANY (p_states) OR (t.incomplete AND t.state = 'DONE' AND 'INCOMPLETE' = ANY (p_states)) END AND in_range(t.data_id, p_from, p_to)
      AND (NOT p_stale OR (t.stale AND t.state = 'DONE' AND in_scope(t.job, t.data_id)))
    ORDER BY sort_key(t.data_id);
END $$;

-- Return the selected data ids of a data set's chunks. Raise DF002 if the data set is unknown.
CREATE FUNCTION opendataflow.select_chunks(p_dataset text, p_from text, p_to text, p_states text[], p_stale boolean DEFAULT false)
RETURNS TABLE (data_id text)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM require_dataset(p_dataset);
    RETURN QUERY
    SELECT c.data_id FROM chunk c
    WHERE c.dataset = p_dataset AND CASE WHEN p_states IS NULL THEN c.status <> 'RETIRED' ELSE c.status = ANY (p_states) END AND in_range(c.data_id, p_from, p_to)
      AND (NOT p_stale OR EXISTS (SELECT FROM job_output o CROSS JOIN task_of(o.job, c.data_id) t
                                  WHERE o.dataset = c.dataset AND t.stale AND t.state = 'DONE' AND in_scope(t.job, t.data_id)))
    ORDER BY sort_key(c.data_id);
END $$;
