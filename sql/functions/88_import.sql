-- Import from a database of the old framework. Existing rows stay unchanged.

-- Import data sets, jobs and chunks. p_datasets: [{id, columns: {…}}]. p_jobs: rows of the table job.
-- The other arrays describe the chunks, one element each. Return
--   {datasets, jobs, chunks: {made, same, other}, conflicts: [sentences, at most 10 of each kind]}
-- A second import creates nothing: equal rows are counted, and different rows are reported as conflicts.
-- Takes the apply lock, then locks as apply() does.
CREATE FUNCTION opendataflow.import_old(p_datasets jsonb, p_jobs jsonb, p_chunk_datasets text[], p_ids text[],
                                        p_statuses text[], p_producers text[], p_times timestamptz[], p_actor text) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    v_found jsonb;
BEGIN
    PERFORM begin_event('import', p_actor), set_config('opendataflow.writer', p_actor, true), lock_apply();
    v_found := jsonb_build_object('datasets', import_datasets(p_datasets), 'jobs', import_jobs(p_jobs),
                                  'chunks', import_chunks(p_chunk_datasets, p_ids, p_statuses, p_producers, p_times));
    RETURN (SELECT jsonb_object_agg(f.key, f.value - 'conflicts') FROM jsonb_each(v_found) AS f)
        || jsonb_build_object('conflicts', (v_found -> 'datasets' -> 'conflicts') || (v_found -> 'jobs' -> 'conflicts')
                                           || (v_found -> 'chunks' -> 'conflicts'));
END $$;

-- Return how many rows were created, were the same, and conflict.
-- p_results: for each row the word MADE or SAME, or a sentence about the conflict.
CREATE FUNCTION opendataflow.import_counts(p_results jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_object(
        'made', count(*) FILTER (WHERE t = '"MADE"'), 'same', count(*) FILTER (WHERE t = '"SAME"'),
        'other', count(*) FILTER (WHERE t NOT IN ('"MADE"', '"SAME"')),
        'conflicts', (SELECT coalesce(jsonb_agg(c.t), '[]') FROM (
            SELECT x AS t FROM jsonb_array_elements(p_results) AS x WHERE x NOT IN ('"MADE"', '"SAME"') LIMIT 10) c))
    FROM jsonb_array_elements(p_results) AS t
$$;

-- Import data sets. A data set that has columns here already is not changed.
CREATE FUNCTION opendataflow.import_datasets(p_datasets jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    v_results jsonb;
    v_new     jsonb;
BEGIN
    SELECT coalesce(jsonb_agg(n.result), '[]'),
           jsonb_agg(jsonb_build_object('op', 'UPDATE', 'id', n.id, 'columns', n.columns)) FILTER (WHERE n.result = 'MADE')
    INTO v_results, v_new
    FROM (SELECT r.id, r.columns,
                 CASE WHEN d.existing IS NULL OR (d.existing = '{}' AND jsonb_strip_nulls(r.columns) <> '{}') THEN 'MADE'
                      WHEN d.existing = jsonb_strip_nulls(r.columns) THEN 'SAME'
                      ELSE format('data set %s has other columns here', r.id) END AS result
          FROM jsonb_to_recordset(p_datasets) AS r(id text, columns jsonb)
          LEFT JOIN LATERAL (SELECT jsonb_strip_nulls(jsonb_build_object(
                                 'hostname', d.hostname, 'database', d.database, 'schemaname', d.schemaname,
                                 'tablename', d.tablename, 'username', d.username, 'encryptedpass', d.encryptedpass)) AS existing
                             FROM dataset d WHERE d.id = r.id OFFSET 0) d ON true) n;
    IF v_new IS NOT NULL THEN
        PERFORM write_datasets(v_new);
    END IF;
    RETURN import_counts(v_results);
END $$;

-- Import jobs. A job that exists already is not changed.
CREATE FUNCTION opendataflow.import_jobs(p_jobs jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    v_results jsonb;
    v_new     jsonb;
BEGIN
    SELECT coalesce(jsonb_agg(n.result), '[]'), jsonb_agg(n.id) FILTER (WHERE n.result = 'MADE') INTO v_results, v_new
    FROM (SELECT r.id, CASE WHEN j.items IS NULL THEN 'MADE' WHEN j.items = r.items THEN 'SAME'
                            ELSE format('job %s has other items here', r.id) END AS result
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
    RETURN import_counts(v_results);
END $$;

-- Import chunks that are only DECLARED here: set the old status and the producer's name.
-- READY chunks get a version and keep the old time.
-- A task with a FAILED output becomes FAILED and waits for a resubmit.
-- Locks levels 0, 3, 4.
CREATE FUNCTION opendataflow.import_chunks(p_datasets text[], p_ids text[], p_statuses text[], p_producers text[], p_times timestamptz[])
RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    v_results jsonb;
BEGIN
    PERFORM begin_event('import', current_writer()), lock_reachable(ARRAY(SELECT DISTINCT s FROM unnest(p_datasets) AS s)),
            notify_engines(create_downstream_rows(p_datasets, p_ids)), lock_chunks(p_datasets, p_ids);
    PERFORM lock_tasks(array_agg(a.job), array_agg(a.data_id)) FROM affected_tasks(p_datasets, p_ids) a;
    SELECT coalesce(jsonb_agg(CASE c.status WHEN 'DECLARED' THEN 'MADE' WHEN n.status THEN 'SAME'
                                            ELSE format('chunk %s of %s was %s and is %s here', n.data_id, n.dataset, n.status, c.status) END
                              ORDER BY n.place), '[]')
    INTO v_results
    FROM unnest(p_datasets, p_ids, p_statuses) WITH ORDINALITY AS n(dataset, data_id, status, place)
    CROSS JOIN chunk_of(n.dataset, n.data_id) AS c;

    UPDATE chunk c
    SET status = n.status, held_status = CASE WHEN n.status = 'HOLD' THEN 'DECLARED' END,
        fence = CASE WHEN n.status = 'READY' THEN next_fence() END,
        published_at = CASE WHEN n.status = 'READY' THEN coalesce(n.made_at, clock_timestamp()) END,
        publisher = n.producer, reason = 'imported', by_hand = true
    FROM unnest(p_datasets, p_ids, p_statuses, p_producers, p_times) AS n(dataset, data_id, status, producer, made_at)
    CROSS JOIN chunk_of(n.dataset, n.data_id) AS was
    WHERE c.ctid = was.at AND was.status = 'DECLARED';

    PERFORM finish_published(array_agg(o.job), array_agg(n.data_id))
    FROM unnest(p_datasets, p_ids, p_statuses) AS n(dataset, data_id, status)
    CROSS JOIN LATERAL (SELECT o.job FROM job_output o WHERE o.dataset = n.dataset OFFSET 0) o WHERE n.status = 'READY';
    UPDATE task t
    SET state = CASE WHEN n.status = 'FAILED' THEN 'FAILED' ELSE t.state END,
        blockers = CASE WHEN n.status = 'FAILED' THEN 0 ELSE t.blockers END,
        rank = CASE WHEN n.status = 'FAILED' THEN 2 ELSE 1 END, reason = 'imported as ' || n.status
    FROM (SELECT o.job, n.data_id, min(n.status) AS status
          FROM unnest(p_datasets, p_ids, p_statuses) AS n(dataset, data_id, status)
          CROSS JOIN LATERAL (SELECT o.job FROM job_output o WHERE o.dataset = n.dataset OFFSET 0) o
          CROSS JOIN chunk_of(n.dataset, n.data_id) AS c
          WHERE n.status IN ('FAILED', 'RESUBMIT') AND c.status = n.status AND c.reason = 'imported' GROUP BY 1, 2) n
    CROSS JOIN task_of(n.job, n.data_id) AS was
    WHERE t.ctid = was.at
      AND CASE WHEN n.status = 'FAILED' THEN was.state IN ('WAITING', 'QUEUED', 'DONE') AND was.run IS NULL
               ELSE was.state IN ('WAITING', 'QUEUED') END;
    PERFORM notify_engines(recount_blockers(array_agg(a.job), array_agg(a.data_id))) FROM affected_tasks(p_datasets, p_ids) a;
    RETURN import_counts(v_results);
END $$;
