-- Sharing between namespaces. A job may read the data sets that another namespace shares with its own. A namespace never changes
-- data sets and jobs of another one. Jobs of files and commands belong to no namespace and may use all.

-- Return why a job of a namespace may not use one of its data sets now; null if it may use all: one of another namespace is not shared,
-- or the job would write it. `today` is free for all.
CREATE FUNCTION opendataflow.sharing_refusal(p_job text) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT format('job %s can''t %s the data set %s: it belongs to %s and ', p_job,
                  CASE l.itemtype WHEN 'OUT' THEN 'write' ELSE 'use' END, d.id,
                  CASE WHEN d.owner IS NOT NULL THEN 'the DataSet ' || d.owner
                       WHEN n.other = '' THEN 'no namespace' ELSE 'the namespace ' || n.other END)
           || CASE WHEN l.itemtype = 'OUT' THEN 'other namespaces may only read it'
                   WHEN n.other = '' THEN format('is not shared; to move it: dataflow db assign %s %s', d.id, n.own)
                   ELSE format('is not shared with namespace %s; add that to its spec.shareWith', n.own) END
    FROM (SELECT * FROM opendataflow.job_dataset l WHERE l.job = p_job OFFSET 0) l
    CROSS JOIN LATERAL (SELECT * FROM opendataflow.dataset d WHERE d.id = l.dataset OFFSET 0) d
    CROSS JOIN LATERAL (SELECT opendataflow.namespace_of(p_job) AS own, opendataflow.namespace_of(d.id) AS other) n
    WHERE n.own <> '' AND d.id <> 'today' AND n.other <> n.own AND (l.itemtype = 'OUT' OR n.own <> ALL (d.share_with))
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

-- Return the locations of the first 5 inputs of a job that other namespaces declare.
CREATE FUNCTION opendataflow.shared_inputs(p_job text) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_agg(x ORDER BY x.id), '[]')
    FROM (SELECT d.id, d.kind, d.hostname, d.database, d.schemaname, d.tablename, d.url, d.format, d.options
          FROM (SELECT * FROM opendataflow.job_input i WHERE i.job = p_job OFFSET 0) i
          CROSS JOIN LATERAL (SELECT * FROM opendataflow.dataset d WHERE d.id = i.dataset OFFSET 0) d
          WHERE d.id <> 'today' AND opendataflow.namespace_of(d.id) <> opendataflow.namespace_of(p_job)
          ORDER BY d.id LIMIT 5) x
$$;

-- Return the jobs of other namespaces that read a data set.
CREATE FUNCTION opendataflow.foreign_readers(p_dataset text) RETURNS SETOF text
LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT i.job
    FROM (SELECT * FROM opendataflow.job_input i WHERE i.dataset = p_dataset OFFSET 0) i
    WHERE opendataflow.namespace_of(p_dataset) <> '' AND opendataflow.namespace_of(i.job) <> opendataflow.namespace_of(p_dataset)
$$;
