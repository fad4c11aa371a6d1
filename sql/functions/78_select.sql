-- What a verb can be asked for without naming each id: from..to in natural order, both included, and in some states. Null
-- is no limit. A verb that follows in the same transaction sees the states as they are then.

CREATE FUNCTION opendataflow.select_tasks(p_job text, p_from text, p_to text, p_states text[])
RETURNS TABLE (data_id text)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM require_job(p_job);
    RETURN QUERY
    SELECT w.data_id FROM task w
    WHERE w.job = p_job AND (p_states IS NULL OR w.state = ANY (p_states)) AND in_range(w.data_id, p_from, p_to)
    ORDER BY sort_key(w.data_id);
END $$;

CREATE FUNCTION opendataflow.select_chunks(p_dataset text, p_from text, p_to text, p_states text[])
RETURNS TABLE (data_id text)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM require_dataset(p_dataset);
    RETURN QUERY
    SELECT c.data_id FROM chunk c
    WHERE c.dataset = p_dataset AND (p_states IS NULL OR c.status = ANY (p_states)) AND in_range(c.data_id, p_from, p_to)
    ORDER BY sort_key(c.data_id);
END $$;
