-- Sharing between namespaces. A job may read the data sets that another namespace shares with its own. A namespace never changes
-- data sets and jobs of another one. What files and commands have declared belongs to no namespace and is free for all.

-- Return why a job of a resource may not use one of its data sets now; null if it may use all: one of another namespace is not shared,
-- or the job would write it.
CREATE FUNCTION opendataflow.sharing_refusal(p_job text) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT format('job %s can''t %s the data set %s: it belongs to the DataSet %s and ', p_job,
                  CASE l.itemtype WHEN 'OUT' THEN 'write' ELSE 'use' END, d.id, d.owner)
           || CASE l.itemtype WHEN 'OUT' THEN 'other namespaces may only read it'
              ELSE format('is not shared with namespace %s; add that to its spec.shareWith', split_part(j.owner, '/', 1)) END
    FROM (SELECT * FROM opendataflow.job j WHERE j.id = p_job AND j.owner IS NOT NULL OFFSET 0) j
    CROSS JOIN LATERAL (SELECT * FROM opendataflow.job_dataset l WHERE l.job = p_job OFFSET 0) l
    CROSS JOIN LATERAL (SELECT * FROM opendataflow.dataset d WHERE d.id = l.dataset OFFSET 0) d
    WHERE split_part(d.owner, '/', 1) <> split_part(j.owner, '/', 1)
      AND (l.itemtype = 'OUT' OR split_part(j.owner, '/', 1) <> ALL (d.share_with))
    ORDER BY d.id LIMIT 1
$$;

-- Raise DF005 if a job may not use one of its data sets.
CREATE FUNCTION opendataflow.require_shared(p_jobs text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_refusal text;
BEGIN
    SELECT r INTO v_refusal FROM unnest(p_jobs) AS j CROSS JOIN sharing_refusal(j) AS r WHERE r IS NOT NULL LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '%', v_refusal USING ERRCODE = 'DF005';
    END IF;
END $$;

-- Return the jobs of other namespaces that read a data set.
CREATE FUNCTION opendataflow.foreign_readers(p_dataset text) RETURNS SETOF text
LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT j.id
    FROM (SELECT * FROM opendataflow.dataset d WHERE d.id = p_dataset AND d.owner IS NOT NULL OFFSET 0) d
    CROSS JOIN LATERAL (SELECT * FROM opendataflow.job_input i WHERE i.dataset = p_dataset OFFSET 0) i
    CROSS JOIN LATERAL (SELECT * FROM opendataflow.job j WHERE j.id = i.job OFFSET 0) j
    WHERE split_part(j.owner, '/', 1) <> split_part(d.owner, '/', 1)
$$;

-- Raise DF005 if a namespace may not send requests for a job or a data set: only for its own, and for what files and commands declared.
-- Raises DF002 if the job or the data set is unknown.
CREATE FUNCTION opendataflow.require_namespace_access(p_id text, p_of_chunks boolean, p_namespace text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_owner text;
BEGIN
    IF p_of_chunks THEN
        PERFORM require_dataset(p_id);
        SELECT d.owner INTO v_owner FROM dataset d WHERE d.id = p_id;
    ELSE
        PERFORM require_job(p_id);
        SELECT j.owner INTO v_owner FROM job j WHERE j.id = p_id;
    END IF;
    IF split_part(v_owner, '/', 1) <> p_namespace THEN
        RAISE EXCEPTION '% % belongs to the % %; ask for it in namespace %', CASE WHEN p_of_chunks THEN 'data set' ELSE 'job' END, p_id,
            CASE WHEN p_of_chunks THEN 'DataSet' ELSE 'DataFlowJob' END, v_owner, split_part(v_owner, '/', 1) USING ERRCODE = 'DF005';
    END IF;
END $$;
