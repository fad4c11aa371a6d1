-- Application of declared data sets and jobs, all in one transaction.

-- Take the apply lock: one apply at a time.
-- It is taken before the graph of jobs is checked, so that the checked graph is the graph that is written.
CREATE FUNCTION opendataflow.lock_apply() RETURNS void
LANGUAGE sql AS $$ SELECT pg_advisory_xact_lock(20132, 0) $$;

-- Return the data sets whose chunks or tasks an apply can change, to be locked exclusively (level 0).
-- These are the data sets of the request, and all that present links connect with them.
-- New links come from the request: they are not written yet, because jobs follow data sets in the lock order.
-- They connect data sets of the request only, so they reach no further ones.
CREATE FUNCTION opendataflow.reachable_by_apply(p_datasets jsonb, p_jobs jsonb) RETURNS text[]
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE named(dataset) AS (
        SELECT d.value ->> 'id' FROM jsonb_array_elements(p_datasets) AS d
        UNION
        SELECT d FROM jsonb_array_elements(p_jobs) AS j, jsonb_array_elements_text((j.value -> 'inputs') || (j.value -> 'outputs')) AS d
        UNION
        SELECT l.dataset FROM jsonb_array_elements(p_jobs) AS j
        CROSS JOIN opendataflow.datasets_of(j.value ->> 'id') AS l(dataset)
    ), reached(dataset) AS (
        SELECT n.dataset FROM named n
        UNION
        SELECT further.dataset FROM reached r
        CROSS JOIN LATERAL (SELECT * FROM opendataflow.job_dataset l WHERE l.dataset = r.dataset OFFSET 0) l
        CROSS JOIN opendataflow.datasets_of(l.job) AS further(dataset)
    )
    SELECT coalesce(array_agg(dataset), '{}') FROM reached
$$;

-- Apply data sets and jobs, and return {plan, woken, declaring}: the plan as plan_of() returns it, which does not count added tasks, and the jobs with newly QUEUED tasks.
-- p_datasets: [{id, kind, hostname, …, options, partitioning, chunks: [{id, bounds}]}]. p_jobs: [{id, parallelism, …,
-- inputs: [], outputs: [], env: {}}]. The keys are the columns of the tables.
-- Instead of `chunks` a data set may have `source`, the rule of a long chunk source: see chunks_of_source().
-- A data set without these keys keeps its chunk source.
-- Chunks of a new long source, and tasks of a new job with many chunks, are not written here: declare_next() writes them in batches.
-- `declaring`: whether anything of this request is left for declare_next().
-- p_limits: see refuse_beyond_limits() and refuse_long_change().
-- p_consent: {change: hash of the plan, retire: true, overlap: true, backfill: all | none}. A hash allows to retire and to overlap.
-- Chunks of a data set without a producer are published, the others are declared.
-- A job with other data sets, range or order gets its tasks rebuilt. RUNNING tasks keep the data that they recorded.
-- RUNNING and DONE tasks become stale if their last run has other inputs than the job has now, and incomplete if an output was added.
-- They are fresh again if these inputs are the same again, in the versions that the run has read, and no bounds have changed.
-- DONE tasks of a job that returns are stale, too, if an input got another version while the job was deleted.
-- Chunks that nothing supports any more are retired, with their tasks. Open tasks that are out of scope are deleted.
-- Locks the apply lock, then levels 0 (exclusive), 2, 3, 4.
-- Raises DF001 (reserved data set), DF004 (id belongs to another resource), DF005 (data set is not shared),
-- DF007 (finished tasks are affected, and p_consent does not allow that; the detail is the plan).
CREATE FUNCTION opendataflow.apply(p_datasets jsonb, p_jobs jsonb, p_actor text, p_consent jsonb DEFAULT '{}', p_limits jsonb DEFAULT '{}') RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    v_rebuild  text[];
    v_relinked text[];
    v_stale    text[];
    v_datasets text[];
    v_ids      text[];
    v_bounds   jsonb[];
    v_queued   text[] := '{}';
    v_stated   text[];
    v_removed  text[];     -- chunks that their source has no more: data sets
    v_removed_ids text[];  -- and ids
    v_gone     text[];     -- chunks to retire: data sets
    v_gone_ids text[];     -- and ids
    v_off      text[];     -- tasks to retire: jobs
    v_off_ids  text[];     -- and ids
    v_redo     text[];     -- finished tasks whose outputs or bounds changed: jobs
    v_redo_ids text[];     -- and ids
    v_bounded  boolean[];  -- and whether the bounds changed
    v_plan     jsonb;
    v_reached  text[];
    v_deferred text[];     -- data sets whose chunks follow in batches
BEGIN
    PERFORM refuse_reserved_today(p_datasets, p_jobs);
    PERFORM begin_event('apply', p_actor), lock_apply();
    v_reached := reachable_by_apply(p_datasets, p_jobs);
    PERFORM lock_datasets(v_reached, true), refuse_taken_ids(p_datasets, p_jobs), refuse_beyond_limits(p_datasets, p_jobs, p_limits);
    p_jobs := add_first_days(p_jobs);
    SELECT s.stated, s.datasets, s.ids, s.bounds, s.removed, s.removed_ids, s.deferred
    INTO v_stated, v_datasets, v_ids, v_bounds, v_removed, v_removed_ids, v_deferred
    FROM stated_chunks(p_datasets, p_jobs, v_reached) s;
    PERFORM lock_withdrawing_jobs(v_removed, p_jobs);
    SELECT r.relinked, r.rebuilt INTO v_relinked, v_rebuild FROM rebuilt_jobs(p_jobs) r;
    PERFORM refuse_long_change(v_datasets || v_removed, p_jobs, v_relinked, v_rebuild, p_limits);
    SELECT with_deferred(p.plan, p_datasets, v_deferred), p.gone, p.gone_ids, p.off, p.off_ids, p.redo, p.redo_ids, p.bounded
    INTO v_plan, v_gone, v_gone_ids, v_off, v_off_ids, v_redo, v_redo_ids, v_bounded
    FROM planned(v_datasets, v_ids, v_bounds, v_removed, v_removed_ids, p_jobs, stated_partitionings(p_datasets)) p;
    IF missing_consents(v_plan, p_consent) <> '{}' THEN
        PERFORM require_consent(with_added_tasks(v_plan, v_datasets, v_ids, p_jobs, v_gone, v_gone_ids), p_consent);
    END IF;

    PERFORM put_datasets(p_datasets), begin_declaring_datasets(p_datasets, v_deferred, v_stated, p_actor);
    -- The inputs of known jobs that changed; a deleted job has lost the record of its inputs.
    SELECT coalesce(array_agg(n.job), '{}') INTO v_stale
    FROM job_changes(p_jobs) n WHERE NOT n.known OR n.added_inputs || n.removed_inputs <> '{}';

    PERFORM put_jobs(p_jobs), require_shared(ARRAY(SELECT n.value ->> 'id' FROM jsonb_array_elements(p_jobs) AS n));
    v_rebuild := ARRAY(SELECT unnest(v_rebuild) EXCEPT SELECT unnest(begin_declaring_jobs(v_rebuild, p_actor)));
    v_queued := v_queued || create_downstream_rows(v_datasets, v_ids);
    PERFORM lock_chunks(v_datasets || v_gone, v_ids || v_gone_ids);
    PERFORM lock_tasks(array_agg(x.job), array_agg(x.data_id))
    FROM (SELECT a.job, a.data_id FROM affected_tasks(v_datasets || v_gone, v_ids || v_gone_ids) a
          UNION SELECT * FROM unnest(v_off, v_off_ids)
          UNION SELECT t.job, t.data_id FROM task t WHERE t.job = ANY (v_rebuild)) x;
    v_queued := v_queued || withdraw(v_removed, v_removed_ids, v_gone, v_gone_ids, v_off, v_off_ids);
    v_queued := v_queued || put_chunks(v_datasets, v_ids, v_bounds);
    UPDATE job j SET declaration = NULL WHERE j.id = ANY (v_relinked) AND j.declaration IS NOT NULL;
    UPDATE task t SET stale = true
    WHERE t.job = ANY (v_stale) AND coalesce(t.retired_from, t.state) IN ('DONE', 'RUNNING') AND NOT t.stale
      AND (ran_with_other_inputs(t.job, t.run)
           OR (t.state = 'DONE' AND read_other_versions(t.run) AND wrote_outputs(t.job, t.data_id, t.run)));
    UPDATE task t SET stale = false
    WHERE t.job = ANY (v_stale) AND coalesce(t.retired_from, t.state) IN ('DONE', 'RUNNING') AND t.stale AND NOT t.bounds_changed
      AND ran_with_other_inputs(t.job, t.run) IS FALSE AND read_present_versions(t.run);
    v_queued := v_queued || rebuild_jobs(v_rebuild, v_relinked);
    IF v_redo IS NOT NULL THEN
        v_queued := v_queued || backfill(v_redo, v_redo_ids, v_bounded, p_consent ->> 'backfill' = 'all');
    END IF;
    PERFORM put_tests(p_jobs);
    v_queued := ARRAY(SELECT DISTINCT j FROM unnest(v_queued) AS j);
    -- Notify engines also about jobs whose parallelism may have grown, and about those to which a data set may be shared now.
    PERFORM notify_engines(ARRAY(SELECT j FROM unnest(v_queued) AS j UNION SELECT n.value ->> 'id' FROM jsonb_array_elements(p_jobs) AS n
                                 UNION SELECT f.job FROM jsonb_array_elements(p_datasets) AS d CROSS JOIN foreign_readers(d.value ->> 'id') AS f(job)));
    RETURN jsonb_build_object('plan', v_plan, 'woken', v_queued, 'declaring', EXISTS (
        SELECT FROM declaring d WHERE (d.kind = 'dataset' AND d.id = ANY (v_reached))
                                   OR (d.kind = 'job' AND d.id IN (SELECT n.value ->> 'id' FROM jsonb_array_elements(p_jobs) AS n))));
END $$;

-- Lock all jobs of the data sets whose chunks are withdrawn (level 2), so that no claim changes the plan meanwhile.
CREATE FUNCTION opendataflow.lock_withdrawing_jobs(p_removed text[], p_jobs jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_jobs text[] := ARRAY(SELECT n.value ->> 'id' FROM jsonb_array_elements(p_jobs) AS n);
BEGIN
    PERFORM lock_jobs(v_jobs || ARRAY(SELECT l.job FROM unnest(reachable_datasets(ARRAY(SELECT DISTINCT d FROM unnest(p_removed) AS d))) AS d
                                      JOIN job_dataset l ON l.dataset = d));
END $$;

-- Return the consents that a plan needs and that are not given. A hash of another plan gives no consent at all.
CREATE FUNCTION opendataflow.missing_consents(p_plan jsonb, p_consent jsonb) RETURNS text[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT ARRAY(
        SELECT n FROM jsonb_array_elements_text(p_plan -> 'needs') AS n
        WHERE coalesce(p_consent ->> 'change', p_plan ->> 'hash') <> p_plan ->> 'hash'
           OR CASE n WHEN 'backfill' THEN coalesce(p_consent ->> 'backfill', '') NOT IN ('all', 'none')
                     ELSE NOT (coalesce((p_consent ->> n)::boolean, false) OR p_consent ->> 'change' IS NOT NULL) END)
$$;

-- Raise DF007 if a plan needs a consent that is not given.
CREATE FUNCTION opendataflow.require_consent(p_plan jsonb, p_consent jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_missing text[] := missing_consents(p_plan, p_consent);
BEGIN
    IF v_missing <> '{}' THEN
        RAISE EXCEPTION 'the change affects finished tasks and was not applied: dataflow apply --dry-run shows its plan'
            USING ERRCODE = 'DF007', DETAIL = p_plan || jsonb_build_object('missing', v_missing);
    END IF;
END $$;

-- Retire chunks and tasks whose ids were withdrawn, and delete those tasks that are still to do.
-- Return the jobs that have newly QUEUED tasks. The caller holds the row locks.
CREATE FUNCTION opendataflow.withdraw(p_removed text[], p_removed_ids text[], p_gone text[], p_gone_ids text[],
                                      p_off text[], p_off_ids text[]) RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE chunk c SET in_source = false
    FROM unnest(p_removed, p_removed_ids) AS r(dataset, data_id), chunk_of(r.dataset, r.data_id) AS was WHERE c.ctid = was.at;
    PERFORM retire_chunks(p_gone, p_gone_ids), delete_out_of_scope(p_off, p_off_ids);
    PERFORM retire_tasks(array_agg(p.job), array_agg(p.data_id))
    FROM unnest(p_off, p_off_ids) AS p(job, data_id) WHERE NOT has_source(p.job, p.data_id);
    RETURN (SELECT recount_blockers(array_agg(a.job), array_agg(a.data_id)) FROM affected_tasks(p_gone, p_gone_ids) a);
END $$;

-- Reopen finished tasks whose outputs or bounds have changed (p_all), or leave them as they are: incomplete, or stale if
-- p_changed, the bounds, is true. Tasks out of the range of their job are never reopened.
-- Return the jobs that have newly QUEUED tasks. The caller holds the row locks.
CREATE FUNCTION opendataflow.backfill(p_jobs text[], p_ids text[], p_changed boolean[], p_all boolean) RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE task t SET stale = true, bounds_changed = true
    FROM unnest(p_jobs, p_ids, p_changed) AS p(job, data_id, changed), task_of(p.job, p.data_id) AS was
    WHERE t.ctid = was.at AND p.changed AND was.state IN ('DONE', 'RUNNING') AND NOT was.bounds_changed
      AND NOT (p_all AND in_scope(was.job, was.data_id));
    IF p_all THEN
        UPDATE task t SET again = true
        FROM unnest(p_jobs, p_ids) AS p(job, data_id), task_of(p.job, p.data_id) AS was
        WHERE t.ctid = was.at AND was.state = 'RUNNING' AND in_scope(was.job, was.data_id);
        PERFORM reopen(n.job, n.ids, 'the declaration of its job has changed')
        FROM (SELECT p.job, array_agg(p.data_id) AS ids FROM unnest(p_jobs, p_ids) AS p(job, data_id), task_of(p.job, p.data_id) AS w
              WHERE w.state = 'DONE' AND in_scope(p.job, p.data_id) GROUP BY p.job ORDER BY p.job) AS n;
    END IF;
    RETURN (SELECT recount_blockers(array_agg(x.job), array_agg(x.data_id))
            FROM (SELECT * FROM unnest(p_jobs, p_ids)
                  UNION SELECT a.job, a.data_id
                  FROM (SELECT array_agg(o.dataset) AS datasets, array_agg(p.data_id) AS ids
                        FROM unnest(p_jobs, p_ids) AS p(job, data_id) JOIN job_output o ON o.job = p.job) c,
                       affected_tasks(c.datasets, c.ids) a) AS x(job, data_id));
END $$;

-- Raise DF004 if an id belongs to another resource, which can only be one of the same namespace: keys have a namespace.
-- The id of a deleted resource is free for another one of its namespace.
CREATE FUNCTION opendataflow.refuse_taken_ids(p_datasets jsonb, p_jobs jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_taken record;
BEGIN
    SELECT * INTO v_taken FROM (
        SELECT 'data set' AS kind, 'DataSet' AS resource, d.id, d.owner
        FROM jsonb_to_recordset(p_datasets) AS n(id text, owner text) JOIN dataset d ON d.id = n.id
        WHERE d.owner <> coalesce(n.owner, '')
        UNION ALL
        SELECT 'job', 'DataFlowJob', j.id, j.owner
        FROM jsonb_to_recordset(p_jobs) AS n(id text, owner text) JOIN job j ON j.id = n.id
        WHERE j.owner <> coalesce(n.owner, '') AND NOT j.deleted) AS x
    ORDER BY 1, 3 LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the id % is taken: the % of this name belongs to the % %; choose another spec.id', v_taken.id,
            v_taken.kind, v_taken.resource, v_taken.owner USING ERRCODE = 'DF004';
    END IF;
END $$;

-- Return whether a run has other inputs than its job has now. Null without a run: a person published the outputs.
CREATE FUNCTION opendataflow.ran_with_other_inputs(p_job text, p_run bigint) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT opendataflow.other_inputs(r.reads, r.forced, ARRAY(SELECT i.dataset FROM opendataflow.job_input i WHERE i.job = p_job))
    FROM opendataflow.run_of(p_run) r
$$;

-- Return whether the inputs that a run has read are others than these. No run records `today`.
-- A forced run lacks the inputs that were not READY.
CREATE FUNCTION opendataflow.other_inputs(p_reads text[], p_forced boolean, p_inputs text[]) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT NOT (p_reads <@ p_inputs AND (p_forced OR p_reads @> array_remove(p_inputs, 'today')))
$$;

-- Return the data sets of a job as sorted words, for comparison.
CREATE FUNCTION opendataflow.links_of(p_job text) RETURNS text[]
LANGUAGE sql STABLE AS $$
    SELECT ARRAY(SELECT l.itemtype || ' ' || l.dataset FROM opendataflow.job_dataset l WHERE l.job = p_job ORDER BY 1)
$$;

-- Return data sets with `source_chunks`, the number of chunks in their chunk source; null if the request does not state it.
CREATE FUNCTION opendataflow.with_source_sizes(p_datasets jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(jsonb_agg(d.value || jsonb_build_object('source_chunks', CASE
        WHEN d.value ? 'chunks' THEN jsonb_array_length(d.value -> 'chunks')
        WHEN d.value ? 'source' THEN opendataflow.source_size(d.value -> 'source') END)), '[]')
    FROM jsonb_array_elements(p_datasets) AS d
$$;

-- Raise DF008 if a namespace would have more than its share: p_limits {chunks, jobs, data_sets}, each optional. What files
-- declare is not limited. A data set counts also after its resource was deleted, because its chunks stay. Chunks are counted by their
-- chunk sources, before any is written. What does not grow is never refused.
CREATE FUNCTION opendataflow.refuse_beyond_limits(p_datasets jsonb, p_jobs jsonb, p_limits jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_beyond record;
BEGIN
    IF p_limits = '{}' THEN
        RETURN;
    END IF;
    SELECT l.what, l.value, n.namespace, n.after INTO v_beyond
    FROM (VALUES ('chunks', 'limits.chunksPerNamespace'), ('jobs', 'limits.jobsPerNamespace'), ('data sets', 'limits.dataSetsPerNamespace')) AS l(what, value)
    JOIN (SELECT x.what, x.namespace, sum(x.before) AS before, sum(x.after) AS after
          FROM (SELECT 'data sets' AS what, namespace_of(d.id) AS namespace, 1::bigint AS before, 1::bigint AS after FROM dataset d
                UNION ALL
                SELECT 'data sets', namespace_of(n.id), 0, 1 FROM jsonb_to_recordset(p_datasets) AS n(id text)
                WHERE NOT EXISTS (SELECT FROM dataset d WHERE d.id = n.id)
                UNION ALL
                SELECT 'jobs', namespace_of(j.id), 1, 1 FROM job j WHERE NOT j.deleted
                UNION ALL
                SELECT 'jobs', namespace_of(n.id), 0, 1 FROM jsonb_to_recordset(p_jobs) AS n(id text)
                WHERE NOT EXISTS (SELECT FROM job j WHERE j.id = n.id AND NOT j.deleted)
                UNION ALL
                SELECT 'chunks', namespace_of(d.id), d.source_chunks, d.source_chunks FROM dataset d WHERE d.source_chunks IS NOT NULL
                UNION ALL
                SELECT 'chunks', namespace_of(n.id), 0, n.source_chunks - coalesce(d.source_chunks, 0)
                FROM jsonb_to_recordset(with_source_sizes(p_datasets)) AS n(id text, source_chunks bigint)
                LEFT JOIN dataset d ON d.id = n.id WHERE n.source_chunks IS NOT NULL) x
          GROUP BY x.what, x.namespace) n ON n.what = l.what
    WHERE n.namespace <> '' AND n.after > n.before AND n.after > (p_limits ->> replace(l.what, ' ', '_'))::bigint
    ORDER BY l.value LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the namespace % would have % %, and % are allowed: nothing was changed; remove some, or ask the administrator for a larger % of the chart',
            v_beyond.namespace, v_beyond.after, v_beyond.what, p_limits ->> replace(v_beyond.what, ' ', '_'), v_beyond.value USING ERRCODE = 'DF008';
    END IF;
END $$;

-- Return the jobs of a request that are new or get other data sets (`relinked`), and these with those that get another range or order,
-- whose tasks are all looked at (`rebuilt`). The caller holds level 2 for these jobs.
CREATE FUNCTION opendataflow.rebuilt_jobs(p_jobs jsonb, OUT relinked text[], OUT rebuilt text[])
LANGUAGE plpgsql STABLE AS $$
BEGIN
    SELECT coalesce(array_agg(n.id) FILTER (WHERE j.id IS NULL OR j.deleted OR n.links <> links_of(n.id)), '{}'),
           coalesce(array_agg(n.id) FILTER (WHERE j.id IS NULL OR j.deleted OR n.links <> links_of(n.id)
                OR (j.descending, j.chunk_from, j.chunk_to) IS DISTINCT FROM (n.descending, n.chunk_from, n.chunk_to)), '{}')
    INTO relinked, rebuilt
    FROM (SELECT r.*, ARRAY(SELECT 'IN ' || d FROM jsonb_array_elements_text(r.inputs) AS d
                            UNION SELECT 'OUT ' || d FROM jsonb_array_elements_text(r.outputs) AS d ORDER BY 1) AS links
          FROM jsonb_to_recordset(p_jobs)
               AS r(id text, inputs jsonb, outputs jsonb, descending boolean, chunk_from text, chunk_to text)) AS n
    LEFT JOIN job j ON j.id = n.id;
END $$;

-- Raise DF008 if an apply would write more chunks and tasks than p_limits {rows} permits: other applies wait for its transaction.
-- p_changed: the data set of each chunk that it changes. p_relinked, p_rebuilt: see rebuilt_jobs().
-- A chunk has a task in every job downstream. Jobs without tasks do not count, because the tasks of many chunks follow in batches.
CREATE FUNCTION opendataflow.refuse_long_change(p_changed text[], p_jobs jsonb, p_relinked text[], p_rebuilt text[], p_limits jsonb) RETURNS void
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_rows bigint;
BEGIN
    IF NOT p_limits ? 'rows' THEN
        RETURN;
    END IF;
    WITH rebuilt AS MATERIALIZED (
        SELECT j AS job, t.n FROM unnest(p_rebuilt) AS j CROSS JOIN LATERAL (SELECT count(*) AS n FROM task t WHERE t.job = j) t WHERE t.n > 0
    ), source AS (
        SELECT d AS dataset, count(*) AS n FROM unnest(p_changed) AS d GROUP BY d
        UNION ALL
        SELECT d, (SELECT count(*) FROM chunk c WHERE c.dataset = d)
        FROM jsonb_to_recordset(p_jobs) AS n(id text, inputs jsonb)
        CROSS JOIN LATERAL jsonb_array_elements_text(n.inputs) AS d
        WHERE n.id = ANY (p_relinked) AND n.id IN (SELECT r.job FROM rebuilt r)
    )
    SELECT coalesce(sum(x.n), 0) INTO v_rows FROM (
        SELECT r.n FROM rebuilt r
        UNION ALL
        SELECT s.n * (1 + (SELECT count(DISTINCT l.job) FROM unnest(reachable_datasets(ARRAY[s.dataset])) AS d
                           CROSS JOIN LATERAL (SELECT * FROM job_dataset l WHERE l.dataset = d OFFSET 0) l)) FROM source s) x;
    IF v_rows > (p_limits ->> 'rows')::bigint THEN
        RAISE EXCEPTION 'the change would write % chunks and tasks at once, and % are allowed: nothing was changed; change it in smaller steps, or ask the administrator for a larger limits.rowsPerChange of the chart',
            v_rows, p_limits ->> 'rows' USING ERRCODE = 'DF008';
    END IF;
END $$;

-- Insert or update data sets.
CREATE FUNCTION opendataflow.put_datasets(p_datasets jsonb) RETURNS void
LANGUAGE sql SET search_path = opendataflow, pg_temp AS $$
    INSERT INTO dataset AS present (id, kind, hostname, database, schemaname, tablename, username, encryptedpass, url, format,
                                    options, secret_ref, partitioning, owner, share_with, declared_as, source_chunks)
    SELECT d.id, d.kind, d.hostname, d.database, d.schemaname, d.tablename, d.username, d.encryptedpass, d.url, d.format,
           coalesce(d.options, '{}'), d.secret_ref, d.partitioning, d.owner, coalesce(d.share_with, '{}'), d.declared_as, d.source_chunks
    FROM jsonb_populate_recordset(NULL::dataset, with_source_sizes(p_datasets)) AS d ORDER BY d.id
    ON CONFLICT (id) DO UPDATE SET
        (source_chunks, kind, hostname, database, schemaname, tablename, username, encryptedpass, url, format, options, secret_ref,
         partitioning, modified, owner, share_with, declared_as)
      = (coalesce(excluded.source_chunks, present.source_chunks), excluded.kind, excluded.hostname, excluded.database, excluded.schemaname, excluded.tablename, excluded.username,
         excluded.encryptedpass, excluded.url, excluded.format, excluded.options, excluded.secret_ref,
         excluded.partitioning, now(), excluded.owner, excluded.share_with, excluded.declared_as)
$$;

-- Insert or update jobs, and replace their inputs, outputs and environment items.
CREATE FUNCTION opendataflow.put_jobs(p_jobs jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_ids text[] := ARRAY(SELECT n.value ->> 'id' FROM jsonb_array_elements(p_jobs) AS n);
BEGIN
    INSERT INTO job (id, parallelism, priority, suspended, descending, chunk_from, chunk_to, retry_limit,
                     infrastructure_limit, backoff_initial, backoff_factor, backoff_maximum, run_deadline, owner, declared_as,
                     cancel_on_delete, pipeline)
    SELECT j.id, j.parallelism, j.priority, j.suspended, j.descending, j.chunk_from, j.chunk_to, j.retry_limit,
           j.infrastructure_limit, j.backoff_initial, j.backoff_factor, j.backoff_maximum, j.run_deadline, j.owner,
           j.declared_as, coalesce(j.cancel_on_delete, false), j.pipeline
    FROM jsonb_populate_recordset(NULL::job, p_jobs) AS j ORDER BY j.id
    ON CONFLICT (id) DO UPDATE SET
        (parallelism, priority, suspended, deleted, descending, chunk_from, chunk_to, retry_limit, infrastructure_limit,
         backoff_initial, backoff_factor, backoff_maximum, run_deadline, modified, owner, declared_as, cancel_on_delete,
         pipeline)
      = (excluded.parallelism, excluded.priority, excluded.suspended, false, excluded.descending, excluded.chunk_from,
         excluded.chunk_to, excluded.retry_limit, excluded.infrastructure_limit, excluded.backoff_initial,
         excluded.backoff_factor, excluded.backoff_maximum, excluded.run_deadline, now(), excluded.owner,
         excluded.declared_as, excluded.cancel_on_delete, excluded.pipeline);

    DELETE FROM job_input i WHERE i.job = ANY (v_ids);
    DELETE FROM job_output o WHERE o.job = ANY (v_ids);
    DELETE FROM job_env e WHERE e.job = ANY (v_ids);
    INSERT INTO dataset (id, kind)
    SELECT 'today', 'calendar' WHERE EXISTS (SELECT FROM jsonb_array_elements(p_jobs) AS n WHERE n.value -> 'inputs' ? 'today')
    ON CONFLICT DO NOTHING;
    INSERT INTO job_input (job, dataset)
    SELECT n.value ->> 'id', d FROM jsonb_array_elements(p_jobs) AS n, jsonb_array_elements_text(n.value -> 'inputs') AS d;
    INSERT INTO job_output (job, dataset)
    SELECT n.value ->> 'id', d FROM jsonb_array_elements(p_jobs) AS n, jsonb_array_elements_text(n.value -> 'outputs') AS d;
    INSERT INTO job_env (job, name, value)
    SELECT n.value ->> 'id', e.key, e.value FROM jsonb_array_elements(p_jobs) AS n, jsonb_each_text(n.value -> 'env') AS e;
END $$;

-- Set the bounds of declared chunks, record their chunk source, and publish the chunks that no job writes.
-- Return the jobs that have newly QUEUED tasks.
-- The caller holds the row locks of the chunks and of the tasks that depend on them.
CREATE FUNCTION opendataflow.put_chunks(p_datasets text[], p_ids text[], p_bounds jsonb[]) RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE chunk c SET in_source = true, bounds = CASE WHEN jsonb_typeof(g.bounds) = 'object' THEN g.bounds ELSE c.bounds END
    FROM unnest(p_datasets, p_ids, p_bounds) AS g(dataset, data_id, bounds), chunk_of(g.dataset, g.data_id) AS was
    WHERE c.ctid = was.at AND (NOT was.in_source OR (jsonb_typeof(g.bounds) = 'object' AND was.bounds IS DISTINCT FROM g.bounds));
    UPDATE chunk c SET status = 'READY', fence = next_fence(), published_at = clock_timestamp(),
                       reason = 'declared as there'
    FROM unnest(p_datasets, p_ids) AS g(dataset, data_id), chunk_of(g.dataset, g.data_id) AS was
    WHERE c.ctid = was.at AND was.status = 'DECLARED'
      AND NOT EXISTS (SELECT FROM job_output o WHERE o.dataset = g.dataset);
    RETURN (SELECT recount_blockers(array_agg(a.job), array_agg(a.data_id)) FROM affected_tasks(p_datasets, p_ids) a);
END $$;

-- Rebuild the tasks of jobs after a change of their data sets, ranges or orders. Return the jobs with newly QUEUED tasks.
-- p_relinked: those that have other data sets than before, or are new.
-- All jobs at once: each step goes downstream, and so would reach the later jobs of a chain once for each earlier one.
-- The caller holds level 0 exclusively and the tasks' row locks.
CREATE FUNCTION opendataflow.rebuild_jobs(p_jobs text[], p_relinked text[]) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    v_jobs   text[];
    v_ids    text[];
    v_queued text[];
BEGIN
    IF p_jobs = '{}' THEN
        RETURN '{}';
    END IF;
    SELECT create_downstream_rows(array_agg(n.dataset), array_agg(n.data_id)) INTO v_queued
    FROM (SELECT DISTINCT c.dataset, c.data_id
          FROM unnest(p_jobs) AS j
          CROSS JOIN LATERAL (SELECT * FROM job_source s WHERE s.job = j OFFSET 0) s
          CROSS JOIN LATERAL (SELECT * FROM chunk c WHERE c.dataset = s.dataset AND c.retired_from IS NULL OFFSET 0) c) n;
    -- After the creation, which may put the id of a task into a source of its job.
    SELECT array_agg(t.job), array_agg(t.data_id) INTO v_jobs, v_ids
    FROM unnest(p_jobs) AS j CROSS JOIN LATERAL (SELECT * FROM task t WHERE t.job = j OFFSET 0) t;
    PERFORM delete_out_of_scope(v_jobs, v_ids);
    UPDATE task t SET sort_key = n.sort_key
    FROM (SELECT w.at, w.sort_key AS before, sort_key(w.data_id, j.descending) AS sort_key
          FROM unnest(v_jobs, v_ids) AS p(job, data_id)
          CROSS JOIN LATERAL (SELECT * FROM job j WHERE j.id = p.job OFFSET 0) j
          CROSS JOIN task_of(p.job, p.data_id) AS w OFFSET 0) n
    WHERE t.ctid = n.at AND n.sort_key <> n.before;
    -- A READY chunk of a relinked job may have another producer.
    PERFORM finish_published(array_agg(t.job), array_agg(t.data_id)), mark_incomplete(array_agg(t.job), array_agg(t.data_id))
    FROM unnest(p_relinked) AS j CROSS JOIN LATERAL (SELECT * FROM task t WHERE t.job = j OFFSET 0) t;
    RETURN v_queued || recount_blockers(v_jobs, v_ids);
END $$;
