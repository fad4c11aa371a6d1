-- Resubmit with everything below: what was made of the chunks that are asked for again is asked for again too.

-- The jobs that read some data sets, the jobs that read what those write, and so on; `depth`: the longest way to there.
CREATE FUNCTION opendataflow.downstream_jobs(p_datasets text[]) RETURNS TABLE (job text, depth integer)
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE below(job, depth) AS (
        SELECT i.job, 1 FROM opendataflow.job_input i WHERE i.dataset = ANY (p_datasets)
        UNION
        SELECT i.job, b.depth + 1 FROM below b
        JOIN opendataflow.job_output o ON o.job = b.job
        JOIN opendataflow.job_input i ON i.dataset = o.dataset
    )
    SELECT b.job, max(b.depth) FROM below b GROUP BY b.job
$$;

-- What is made by the job that makes a data set; a data set that no job makes, alone.
CREATE FUNCTION opendataflow.sibling_outputs(p_dataset text) RETURNS text[]
LANGUAGE sql STABLE AS $$
    SELECT ARRAY(SELECT p_dataset UNION
                 SELECT o.dataset FROM opendataflow.job_output m JOIN opendataflow.job_output o ON o.job = m.job
                 WHERE m.dataset = p_dataset ORDER BY 1)
$$;

-- The outputs of a job.
CREATE FUNCTION opendataflow.outputs_of(p_job text) RETURNS text[]
LANGUAGE sql STABLE AS $$
    SELECT ARRAY(SELECT o.dataset FROM opendataflow.job_output o WHERE o.job = p_job ORDER BY 1)
$$;

-- Level 0, 3 and 4 for chunks of some data sets and of everything below, all at once: the verbs that follow job by job
-- take nothing more.
CREATE FUNCTION opendataflow.lock_downstream(p_datasets text[], p_ids text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_below    text[] := ARRAY(SELECT b.job FROM downstream_jobs(p_datasets) b ORDER BY 1);
    v_written  text[];
    v_datasets text[];
    v_ids      text[];
BEGIN
    v_written := p_datasets || ARRAY(SELECT o.dataset FROM job_output o WHERE o.job = ANY (v_below));
    PERFORM lock_datasets(v_written);
    IF v_below <> ARRAY(SELECT b.job FROM downstream_jobs(p_datasets) b ORDER BY 1)
       OR NOT ARRAY(SELECT o.dataset FROM job_output o WHERE o.job = ANY (v_below)) <@ v_written THEN
        RAISE EXCEPTION 'the jobs below were changed at this moment: try again' USING ERRCODE = 'serialization_failure';
    END IF;
    SELECT array_agg(d), array_agg(i) INTO v_datasets, v_ids FROM unnest(v_written) AS d, unnest(p_ids) AS i;
    PERFORM lock_chunks(v_datasets, v_ids);
    PERFORM lock_tasks(array_agg(a.job), array_agg(a.data_id)) FROM affected_tasks(v_datasets, v_ids) a;
END $$;

-- Asks again for all tasks below that have run, or are running, for these ids: from the top down, so that each of them
-- waits for what is above it.
CREATE FUNCTION opendataflow.resubmit_downstream(p_datasets text[], p_ids text[], p_actor text, p_reason text)
RETURNS TABLE (data_id text, result text, state text, message text, job text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_job text;
    v_ids text[];
BEGIN
    FOR v_job IN SELECT b.job FROM downstream_jobs(p_datasets) b ORDER BY b.depth, b.job LOOP
        v_ids := ARRAY(SELECT i FROM unnest(p_ids) AS i, task_of(v_job, i) AS w
                       WHERE w.state <> 'SKIPPED'
                         AND coalesce(w.held_from, w.state) IN ('DONE', 'FAILED', 'RUNNING') AND in_scope(v_job, w.data_id));
        CONTINUE WHEN cardinality(v_ids) = 0;
        RETURN QUERY SELECT r.*, v_job FROM resubmit(v_job, v_ids, p_actor, p_reason) AS r;
    END LOOP;
END $$;

-- Like resubmit, with all tasks below; `job` says whose task a row is about.
CREATE FUNCTION opendataflow.resubmit_cascade(p_job text, p_ids text[], p_actor text, p_reason text DEFAULT NULL)
RETURNS TABLE (data_id text, result text, state text, message text, job text)
LANGUAGE plpgsql AS $$
DECLARE
    v_outputs text[] := outputs_of(p_job);
BEGIN
    PERFORM begin_event('resubmit', p_actor, p_reason), require_job(p_job), lock_downstream(v_outputs, p_ids);
    IF v_outputs <> outputs_of(p_job) THEN
        RAISE EXCEPTION 'job % was changed at this moment: try again', p_job USING ERRCODE = 'serialization_failure';
    END IF;
    RETURN QUERY SELECT r.*, p_job FROM resubmit(p_job, p_ids, p_actor, p_reason) AS r;
    RETURN QUERY SELECT * FROM resubmit_downstream(v_outputs, p_ids, p_actor, p_reason);
END $$;

-- Like resubmit_chunks, with all tasks below; `job` is null for the chunks themselves.
CREATE FUNCTION opendataflow.resubmit_chunks_cascade(p_dataset text, p_ids text[], p_actor text, p_reason text DEFAULT NULL)
RETURNS TABLE (data_id text, result text, state text, message text, job text)
LANGUAGE plpgsql AS $$
DECLARE
    v_outputs text[] := sibling_outputs(p_dataset);
BEGIN
    PERFORM begin_event('resubmit', p_actor, p_reason), require_dataset(p_dataset), lock_downstream(v_outputs, p_ids);
    IF v_outputs <> sibling_outputs(p_dataset) THEN
        RAISE EXCEPTION 'data set % has got another producer at this moment: try again', p_dataset
            USING ERRCODE = 'serialization_failure';
    END IF;
    RETURN QUERY SELECT r.*, NULL::text FROM resubmit_chunks(p_dataset, p_ids, p_actor, p_reason) AS r;
    RETURN QUERY SELECT * FROM resubmit_downstream(v_outputs, p_ids, p_actor, p_reason);
END $$;
