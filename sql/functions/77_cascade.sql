-- Resubmit with all downstream tasks: everything that was built from the resubmitted chunks is resubmitted too.

-- Return the jobs that read the data sets, the jobs that read their outputs, and so on.
-- `depth`: the length of the longest path. Jobs of other namespaces are not among them: their tasks become stale, and their
-- owners decide.
CREATE FUNCTION opendataflow.downstream_jobs(p_datasets text[]) RETURNS TABLE (job text, depth integer)
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE below(job, depth) AS (
        SELECT i.job, 1 FROM opendataflow.job_input i
        WHERE i.dataset = ANY (p_datasets) AND opendataflow.namespace_of(i.job) = opendataflow.namespace_of(i.dataset)
        UNION
        SELECT i.job, b.depth + 1 FROM below b
        JOIN opendataflow.job_output o ON o.job = b.job
        JOIN opendataflow.job_input i ON i.dataset = o.dataset AND opendataflow.namespace_of(i.job) = opendataflow.namespace_of(i.dataset)
    )
    SELECT b.job, max(b.depth) FROM below b GROUP BY b.job
$$;

-- Return the outputs of the job that writes a data set, or the data set alone if no job writes it.
CREATE FUNCTION opendataflow.sibling_outputs(p_dataset text) RETURNS text[]
LANGUAGE sql STABLE AS $$
    SELECT ARRAY(SELECT p_dataset UNION
                 SELECT o.dataset FROM opendataflow.job_output m JOIN opendataflow.job_output o ON o.job = m.job
                 WHERE m.dataset = p_dataset ORDER BY 1)
$$;

-- Return the outputs of a job.
CREATE FUNCTION opendataflow.outputs_of(p_job text) RETURNS text[]
LANGUAGE sql STABLE AS $$
    SELECT ARRAY(SELECT o.dataset FROM opendataflow.job_output o WHERE o.job = p_job ORDER BY 1)
$$;

-- Lock the chunks of the data sets and of everything downstream, with their tasks (levels 0, 3, 4).
-- Commands that follow, job by job, take no further locks.
-- Raise a serialization failure if a downstream job was changed meanwhile.
CREATE FUNCTION opendataflow.lock_downstream(p_datasets text[], p_ids text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_downstream text[] := ARRAY(SELECT b.job FROM downstream_jobs(p_datasets) b ORDER BY 1);
    v_written    text[];
    v_datasets   text[];
    v_ids        text[];
BEGIN
    v_written := p_datasets || ARRAY(SELECT o.dataset FROM job_output o WHERE o.job = ANY (v_downstream));
    PERFORM lock_datasets(v_written);
    IF v_downstream <> ARRAY(SELECT b.job FROM downstream_jobs(p_datasets) b ORDER BY 1)
       OR NOT ARRAY(SELECT o.dataset FROM job_output o WHERE o.job = ANY (v_downstream)) <@ v_written THEN
        RAISE EXCEPTION 'the jobs below were changed at this moment: try again' USING ERRCODE = 'serialization_failure';
    END IF;
    SELECT array_agg(d), array_agg(i) INTO v_datasets, v_ids FROM unnest(v_written) AS d, unnest(p_ids) AS i;
    PERFORM lock_chunks(v_datasets, v_ids);
    PERFORM lock_tasks(array_agg(a.job), array_agg(a.data_id)) FROM affected_tasks(v_datasets, v_ids) a;
END $$;

-- Resubmit all downstream tasks of these ids that have run or are running.
-- Jobs are processed in downstream order, so that each task waits for the tasks before it.
CREATE FUNCTION opendataflow.resubmit_downstream(p_datasets text[], p_ids text[], p_actor text, p_reason text)
RETURNS TABLE (data_id text, result text, state text, message text, job text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_job text;
    v_ids text[];
BEGIN
    FOR v_job IN SELECT b.job FROM downstream_jobs(p_datasets) b ORDER BY b.depth, b.job LOOP
        v_ids := ARRAY(SELECT i FROM unnest(p_ids) AS i, task_of(v_job, i) AS t
                       WHERE t.state NOT IN ('SKIPPED', 'RETIRED')
                         AND coalesce(t.held_from, t.state) IN ('DONE', 'FAILED', 'RUNNING') AND in_scope(v_job, t.data_id));
        CONTINUE WHEN cardinality(v_ids) = 0;
        RETURN QUERY SELECT r.*, v_job FROM resubmit(v_job, v_ids, p_actor, p_reason) AS r;
    END LOOP;
END $$;

-- Resubmit tasks with all downstream tasks. `job` is the job of each row.
-- Locks levels 0, 3, 4. Raises DF002 if the job is unknown, and a serialization failure if it was changed meanwhile.
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

-- Resubmit chunks with all downstream tasks. `job` is null for the chunks themselves.
-- Locks levels 0, 3, 4.
-- Raises DF002 if the data set is unknown, and a serialization failure if its producer has changed.
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
