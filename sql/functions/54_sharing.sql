-- Sharing between namespaces. A job may read the data sets that another namespace shares with its own. A namespace never changes
-- data sets and jobs of another one. Jobs of files and commands belong to no namespace and may use all.

-- Return why a job may not read or write a data set; null if it may. `today` is free for all.
-- A data set of another namespace that is not there is not shared either: nobody learns the ids of others.
CREATE FUNCTION opendataflow.use_refusal(p_job text, p_dataset text, p_writes boolean) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN n.own = '' OR p_dataset = 'today' OR n.other = n.own THEN NULL
                WHEN p_writes THEN format('job %s can''t write the data set %s: it belongs to another namespace, and other namespaces may only read it', p_job, p_dataset)
                WHEN EXISTS (SELECT FROM opendataflow.dataset d WHERE d.id = p_dataset AND n.own = ANY (d.share_with)) THEN NULL
                WHEN n.other = '' THEN format('job %s can''t use the data set %s: it belongs to no namespace and is not shared; to move it: dataflow db assign %s %s',
                                              p_job, p_dataset, p_dataset, n.own)
                ELSE format('job %s can''t use the data set %s: the namespace %s does not share it with namespace %s; its owner adds that to spec.shareWith of the DataSet',
                            p_job, p_dataset, n.other, n.own) END
    FROM (SELECT opendataflow.namespace_of(p_job) AS own, opendataflow.namespace_of(p_dataset) AS other) n
$$;

-- Return why a job may not use one of its data sets now; null if it may use all.
CREATE FUNCTION opendataflow.sharing_refusal(p_job text) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT r FROM (SELECT * FROM opendataflow.job_dataset l WHERE l.job = p_job OFFSET 0) l
    CROSS JOIN LATERAL opendataflow.use_refusal(p_job, l.dataset, l.itemtype = 'OUT') AS r
    WHERE r IS NOT NULL ORDER BY l.dataset LIMIT 1
$$;

-- Raise DF005 if a job of a request may not use one of its data sets. It comes before any other check of the data sets of others.
CREATE FUNCTION opendataflow.refuse_unshared(p_jobs jsonb) RETURNS void
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_refusal text;
BEGIN
    SELECT r INTO v_refusal
    FROM jsonb_to_recordset(p_jobs) AS n(id text, inputs jsonb, outputs jsonb)
    CROSS JOIN LATERAL (SELECT d, false AS writes FROM jsonb_array_elements_text(n.inputs) AS d
                        UNION ALL SELECT d, true FROM jsonb_array_elements_text(n.outputs) AS d) l
    CROSS JOIN LATERAL use_refusal(n.id, l.d, l.writes) AS r
    WHERE r IS NOT NULL ORDER BY n.id, l.d LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '%', v_refusal USING ERRCODE = 'DF005';
    END IF;
END $$;

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
