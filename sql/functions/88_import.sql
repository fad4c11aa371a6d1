-- Takes over what a database of the framework that came before has. What is here already stays as it is.

-- p_datasets: [{id, columns: {…}}]; p_jobs: rows of job; the chunks: one place in each array. Returns
--   {datasets, jobs, chunks: {made, same, other}, conflicts: [a sentence each, the first ones]}
-- A second import makes nothing: what is the same is counted, what is other here is told.
CREATE FUNCTION opendataflow.import_old(p_datasets jsonb, p_jobs jsonb, p_sets text[], p_ids text[], p_statuses text[],
                                        p_makers text[], p_times timestamptz[], p_actor text) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    v_found jsonb;
BEGIN
    PERFORM begin_event('import', p_actor), set_config('opendataflow.writer', p_actor, true), lock_apply();
    v_found := jsonb_build_object('datasets', import_datasets(p_datasets), 'jobs', import_jobs(p_jobs),
                                  'chunks', import_chunks(p_sets, p_ids, p_statuses, p_makers, p_times));
    RETURN (SELECT jsonb_object_agg(f.key, f.value - 'conflicts') FROM jsonb_each(v_found) AS f)
        || jsonb_build_object('conflicts', (v_found -> 'datasets' -> 'conflicts') || (v_found -> 'jobs' -> 'conflicts')
                                           || (v_found -> 'chunks' -> 'conflicts'));
END $$;

-- How much of something was made, was there, and is other here: of each row its name and MADE, SAME or a sentence.
CREATE FUNCTION opendataflow.import_counts(p_told jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_object(
        'made', count(*) FILTER (WHERE t = '"MADE"'), 'same', count(*) FILTER (WHERE t = '"SAME"'),
        'other', count(*) FILTER (WHERE t NOT IN ('"MADE"', '"SAME"')),
        'conflicts', (SELECT coalesce(jsonb_agg(c.t), '[]') FROM (
            SELECT x AS t FROM jsonb_array_elements(p_told) AS x WHERE x NOT IN ('"MADE"', '"SAME"') LIMIT 10) c))
    FROM jsonb_array_elements(p_told) AS t
$$;

CREATE FUNCTION opendataflow.import_datasets(p_datasets jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    v_told jsonb;
    v_new  jsonb;
BEGIN
    SELECT coalesce(jsonb_agg(n.told), '[]'),
           jsonb_agg(jsonb_build_object('op', 'UPDATE', 'id', n.id, 'columns', n.columns)) FILTER (WHERE n.told = 'MADE')
    INTO v_told, v_new
    FROM (SELECT r.id, r.columns,
                 CASE WHEN d.here IS NULL OR (d.here = '{}' AND jsonb_strip_nulls(r.columns) <> '{}') THEN 'MADE'
                      WHEN d.here = jsonb_strip_nulls(r.columns) THEN 'SAME'
                      ELSE format('data set %s has other columns here', r.id) END AS told
          FROM jsonb_to_recordset(p_datasets) AS r(id text, columns jsonb)
          LEFT JOIN LATERAL (SELECT jsonb_strip_nulls(jsonb_build_object(
                                 'hostname', d.hostname, 'database', d.database, 'schemaname', d.schemaname,
                                 'tablename', d.tablename, 'username', d.username, 'encryptedpass', d.encryptedpass)) AS here
                             FROM dataset d WHERE d.id = r.id OFFSET 0) d ON true) n;
    IF v_new IS NOT NULL THEN
        PERFORM write_datasets(v_new);
    END IF;
    RETURN import_counts(v_told);
END $$;

CREATE FUNCTION opendataflow.import_jobs(p_jobs jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    v_told jsonb;
    v_new  jsonb;
BEGIN
    SELECT coalesce(jsonb_agg(n.told), '[]'), jsonb_agg(n.id) FILTER (WHERE n.told = 'MADE') INTO v_told, v_new
    FROM (SELECT r.id, CASE WHEN j.items IS NULL THEN 'MADE' WHEN j.items = r.items THEN 'SAME'
                            ELSE format('job %s has other items here', r.id) END AS told
          FROM (SELECT i.jobid AS id, array_agg(DISTINCT concat_ws(' ', i.itemtype, i.datasetid, i.itemvalue)
                                                ORDER BY concat_ws(' ', i.itemtype, i.datasetid, i.itemvalue)) AS items
                FROM jsonb_to_recordset(p_jobs) AS i(jobid text, itemtype text, datasetid text, itemvalue text)
                GROUP BY 1) r
          LEFT JOIN LATERAL (SELECT ARRAY(SELECT l.itemtype || ' ' || l.dataset FROM job_dataset l WHERE l.job = r.id
                                          UNION SELECT e.name || ' ' || e.value FROM job_env e WHERE e.job = r.id
                                          ORDER BY 1) AS items
                             FROM job j WHERE j.id = r.id AND NOT j.deleted OFFSET 0) j ON true) n;
    IF v_new IS NOT NULL THEN
        PERFORM write_jobs((SELECT jsonb_agg(i.value) FROM jsonb_array_elements(p_jobs) AS i WHERE v_new ? (i.value ->> 'jobid')));
    END IF;
    RETURN import_counts(v_told);
END $$;

-- Chunks that are not more than declared here get their old status, with the name of their maker; READY ones a version and
-- the old time. A task whose output FAILED has failed and waits for a resubmit.
CREATE FUNCTION opendataflow.import_chunks(p_sets text[], p_ids text[], p_statuses text[], p_makers text[], p_times timestamptz[])
RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    v_told jsonb;
BEGIN
    PERFORM begin_event('import', current_writer()), lock_reachable(ARRAY(SELECT DISTINCT s FROM unnest(p_sets) AS s)),
            notify_engines(create_downstream_rows(p_sets, p_ids)), lock_chunks(p_sets, p_ids);
    PERFORM lock_tasks(array_agg(a.job), array_agg(a.data_id)) FROM affected_tasks(p_sets, p_ids) a;
    SELECT coalesce(jsonb_agg(CASE c.status WHEN 'DECLARED' THEN 'MADE' WHEN n.status THEN 'SAME'
                                            ELSE format('chunk %s of %s was %s and is %s here', n.data_id, n.dataset, n.status, c.status) END
                              ORDER BY n.place), '[]')
    INTO v_told
    FROM unnest(p_sets, p_ids, p_statuses) WITH ORDINALITY AS n(dataset, data_id, status, place)
    CROSS JOIN chunk_of(n.dataset, n.data_id) AS c;

    UPDATE chunk c
    SET status = n.status, held_status = CASE WHEN n.status = 'HOLD' THEN 'DECLARED' END,
        fence = CASE WHEN n.status = 'READY' THEN nextval('fence') END,
        published_at = CASE WHEN n.status = 'READY' THEN coalesce(n.made_at, clock_timestamp()) END,
        publisher = n.maker, reason = 'imported'
    FROM unnest(p_sets, p_ids, p_statuses, p_makers, p_times) AS n(dataset, data_id, status, maker, made_at)
    CROSS JOIN chunk_of(n.dataset, n.data_id) AS was
    WHERE c.ctid = was.at AND was.status = 'DECLARED';

    PERFORM finish_published(array_agg(o.job), array_agg(n.data_id))
    FROM unnest(p_sets, p_ids, p_statuses) AS n(dataset, data_id, status)
    CROSS JOIN LATERAL (SELECT o.job FROM job_output o WHERE o.dataset = n.dataset OFFSET 0) o WHERE n.status = 'READY';
    UPDATE task w
    SET state = CASE WHEN n.status = 'FAILED' THEN 'FAILED' ELSE w.state END,
        blockers = CASE WHEN n.status = 'FAILED' THEN 0 ELSE w.blockers END,
        rank = CASE WHEN n.status = 'FAILED' THEN 2 ELSE 1 END, reason = 'imported as ' || n.status
    FROM (SELECT o.job, n.data_id, min(n.status) AS status
          FROM unnest(p_sets, p_ids, p_statuses) AS n(dataset, data_id, status)
          CROSS JOIN LATERAL (SELECT o.job FROM job_output o WHERE o.dataset = n.dataset OFFSET 0) o
          CROSS JOIN chunk_of(n.dataset, n.data_id) AS c
          WHERE n.status IN ('FAILED', 'RESUBMIT') AND c.status = n.status AND c.reason = 'imported' GROUP BY 1, 2) n
    CROSS JOIN task_of(n.job, n.data_id) AS was
    WHERE w.ctid = was.at
      AND CASE WHEN n.status = 'FAILED' THEN was.state IN ('WAITING', 'QUEUED', 'DONE') AND was.run IS NULL
               ELSE was.state IN ('WAITING', 'QUEUED') END;
    PERFORM notify_engines(recount_blockers(array_agg(a.job), array_agg(a.data_id))) FROM affected_tasks(p_sets, p_ids) a;
    RETURN import_counts(v_told);
END $$;
