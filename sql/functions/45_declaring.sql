-- Declarations of many chunks: the declaration is committed first, and its chunks and tasks follow in bounded transactions.
-- While a row of `declaring` exists, nothing that depends on it is complete.

-- Return the most chunks that one transaction declares. A longer declaration is written in batches.
CREATE FUNCTION opendataflow.declaring_batch() RETURNS integer
LANGUAGE sql STABLE AS $$
    SELECT coalesce(nullif(current_setting('opendataflow.declaring_batch', true), '')::integer, 10000)
$$;

-- Return the number of chunks of a chunk source: {range: {from, to, step}}, {dateRange: {from, to, step}} or {hash: {buckets}}.
CREATE FUNCTION opendataflow.source_size(p_source jsonb) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_source ? 'hash' THEN (p_source #>> '{hash,buckets}')::bigint
                WHEN p_source ? 'range'
                THEN ceil(((p_source #>> '{range,to}')::numeric - (p_source #>> '{range,from}')::numeric) / (p_source #>> '{range,step}')::numeric)::bigint
                WHEN p_source #>> '{dateRange,step}' = 'day' THEN ((p_source #>> '{dateRange,to}')::date - (p_source #>> '{dateRange,from}')::date)::bigint
                ELSE (extract(year FROM m.last) * 12 + extract(month FROM m.last) - extract(year FROM m.first) * 12 - extract(month FROM m.first))::bigint END
    FROM (SELECT (p_source #>> '{dateRange,from}')::date AS first, (p_source #>> '{dateRange,to}')::date AS last) m
$$;

-- Return p_limit chunks of a chunk source after the first p_after, in its order: those of ChunkSource.chunks() in
-- model/resources/chunk_source.py.
CREATE FUNCTION opendataflow.chunks_of_source(p_source jsonb, p_after bigint, p_limit bigint) RETURNS TABLE (data_id text, bounds jsonb)
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_first bigint := p_after;
    v_last  bigint := least(p_after + p_limit, source_size(p_source)) - 1;
    v_from  numeric := (p_source #>> '{range,from}')::numeric;
    v_to    numeric := (p_source #>> '{range,to}')::numeric;
    v_step  numeric := (p_source #>> '{range,step}')::numeric;
    v_day   date := (p_source #>> '{dateRange,from}')::date;
BEGIN
    IF p_source ? 'hash' THEN
        RETURN QUERY SELECT n || '-of-' || (p_source #>> '{hash,buckets}'), jsonb_build_object('bucket', n, 'buckets', p_source #> '{hash,buckets}')
        FROM generate_series(v_first, v_last) AS n;
    ELSIF p_source ? 'range' THEN
        RETURN QUERY SELECT b.first || '-' || (b.following - 1), jsonb_build_object('from', b.first, 'to', b.following)
        FROM generate_series(v_first, v_last) AS n
        CROSS JOIN LATERAL (SELECT v_from + n * v_step AS first, least(v_from + (n + 1) * v_step, v_to) AS following) b;
    ELSIF p_source #>> '{dateRange,step}' = 'day' THEN
        RETURN QUERY SELECT to_char(v_day + n::integer, 'YYYY-MM-DD'),
                            jsonb_build_object('from', to_char(v_day + n::integer, 'YYYY-MM-DD'), 'to', to_char(v_day + n::integer + 1, 'YYYY-MM-DD'))
        FROM generate_series(v_first, v_last) AS n;
    ELSE
        RETURN QUERY SELECT to_char(b.first, 'YYYY-MM'), jsonb_build_object('from', to_char(b.first, 'YYYY-MM-DD'), 'to', to_char(b.following, 'YYYY-MM-DD'))
        FROM generate_series(v_first, v_last) AS n
        CROSS JOIN LATERAL (SELECT v_day + make_interval(months => n::integer) AS first, v_day + make_interval(months => n::integer + 1) AS following) b;
    END IF;
END $$;

-- Return what is still being declared among these data sets and jobs, and everything that can give them new ids: {declared, total}, in
-- chunks. Null if all of it is complete. Every data set of a job gets the ids of the job's sources.
CREATE FUNCTION opendataflow.declaring_behind(p_datasets text[], p_jobs text[]) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM declaring) THEN
        RETURN NULL;
    END IF;
    RETURN (
        WITH RECURSIVE upstream(dataset) AS (
            SELECT d FROM unnest(p_datasets) AS d
            UNION
            SELECT s.dataset FROM upstream u
            CROSS JOIN LATERAL (SELECT * FROM job_dataset l WHERE l.dataset = u.dataset AND spreads_to(l.job, l.dataset) OFFSET 0) l
            CROSS JOIN LATERAL (SELECT * FROM job_source s WHERE s.job = l.job OFFSET 0) s
        ), linked AS (
            SELECT j FROM unnest(p_jobs) AS j
            UNION
            SELECT l.job FROM upstream u
            CROSS JOIN LATERAL (SELECT * FROM job_dataset l WHERE l.dataset = u.dataset AND spreads_to(l.job, l.dataset) OFFSET 0) l
        )
        SELECT jsonb_build_object('declared', sum(d.declared), 'total', sum(d.total)) FROM declaring d
        WHERE CASE d.kind WHEN 'dataset' THEN d.id IN (SELECT u.dataset FROM upstream u) ELSE d.id IN (SELECT k.j FROM linked k) END
        HAVING count(*) > 0);
END $$;

-- Return the same for a job with its data sets.
CREATE FUNCTION opendataflow.declaring_of_job(p_job text) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT opendataflow.declaring_behind(ARRAY(SELECT opendataflow.datasets_of(p_job)), ARRAY[p_job])
$$;

-- Record that the chunks of long chunk sources follow, and end the record of every data set whose chunks the apply writes itself (p_stated).
-- A source that is being declared already continues where it is.
CREATE FUNCTION opendataflow.begin_declaring_datasets(p_datasets jsonb, p_deferred text[], p_stated text[], p_actor text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM declaring d WHERE d.kind = 'dataset' AND d.id = ANY (p_stated);
    INSERT INTO declaring (kind, id, source, total, batch, actor)
    SELECT 'dataset', n.id, n.source, source_size(n.source), declaring_batch(), p_actor
    FROM jsonb_to_recordset(p_datasets) AS n(id text, source jsonb) WHERE n.id = ANY (p_deferred)
    ON CONFLICT (kind, id) DO UPDATE SET actor = excluded.actor;
END $$;

-- Return those of the given jobs whose tasks are written in batches, and record them: new jobs whose sources have many chunks.
-- Every other one of them gets its tasks in the present transaction, so that its record ends.
CREATE FUNCTION opendataflow.begin_declaring_jobs(p_jobs text[], p_actor text) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    v_deferred text[];
BEGIN
    DELETE FROM declaring d WHERE d.kind = 'job' AND d.id = ANY (p_jobs);
    WITH made AS (
        INSERT INTO declaring (kind, id, total, batch, actor)
        SELECT 'job', j.id, n.chunks, declaring_batch(), p_actor
        FROM unnest(p_jobs) AS p(id)
        CROSS JOIN LATERAL (SELECT * FROM job j WHERE j.id = p.id OFFSET 0) j
        CROSS JOIN LATERAL (SELECT sum(c.chunks)::bigint AS chunks FROM job_source s CROSS JOIN LATERAL (
                                SELECT count(*) AS chunks FROM chunk c WHERE c.dataset = s.dataset) c WHERE s.job = j.id) n
        WHERE n.chunks > declaring_batch() AND NOT EXISTS (SELECT FROM task t WHERE t.job = p.id)
        RETURNING id)
    SELECT array_agg(id) INTO v_deferred FROM made;
    RETURN coalesce(v_deferred, '{}');
END $$;

-- Return the declaration whose turn it is, or null. p_after: the namespace of the last batch.
-- Namespaces take turns in their order; in a namespace the oldest declaration is first.
CREATE FUNCTION opendataflow.next_declaring(p_after text) RETURNS opendataflow.declaring
LANGUAGE sql STABLE AS $$
    SELECT d FROM opendataflow.declaring d CROSS JOIN LATERAL opendataflow.namespace_of(d.id) AS n(namespace)
    ORDER BY n.namespace <= p_after, n.namespace, d.since, d.kind, d.id LIMIT 1
$$;

-- Write the next batch of one declaration, and return {kind, id, namespace, declared, total}; null if nothing is being declared.
-- p_after: see next_declaring(). An engine listens to the jobs that have newly QUEUED tasks.
-- Locks levels 0 (exclusive for a job), 3, 4, after which the record can't be finished by another engine or replaced by an apply.
-- Raises a serialization failure if a job was changed meanwhile.
CREATE FUNCTION opendataflow.declare_next(p_after text DEFAULT '') RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    v_begin    timestamptz := clock_timestamp();
    v_next     declaring;
    v_sources  text[];
    v_reach    text[];
    v_datasets text[];
    v_ids      text[];
    v_bounds   jsonb[];
    v_woken    text[];
    v_seconds  double precision;
BEGIN
    v_next := next_declaring(p_after);
    IF v_next.id IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM begin_event('apply', v_next.actor);
    IF v_next.kind = 'dataset' THEN
        PERFORM lock_reachable(ARRAY[v_next.id]);
    ELSE
        v_sources := ARRAY(SELECT s.dataset FROM job_source s WHERE s.job = v_next.id ORDER BY 1);
        v_reach := reachable_datasets(v_sources);
        PERFORM lock_datasets(v_reach, true);
        IF NOT reachable_datasets(ARRAY(SELECT s.dataset FROM job_source s WHERE s.job = v_next.id)) <@ v_reach THEN
            RAISE EXCEPTION 'job % was changed at this moment: try again', v_next.id USING ERRCODE = 'serialization_failure';
        END IF;
    END IF;
    SELECT * INTO v_next FROM declaring d WHERE d.kind = v_next.kind AND d.id = v_next.id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN jsonb_build_object('namespace', p_after);  -- another engine or an apply has ended it
    END IF;
    IF v_next.kind = 'dataset' THEN
        SELECT array_agg(c.data_id), array_agg(c.bounds) INTO v_ids, v_bounds FROM chunks_of_source(v_next.source, v_next.declared, v_next.batch) c;
        v_woken := add_source_chunks(v_next.id, v_ids, v_bounds);
    ELSE
        SELECT array_agg(n.dataset), array_agg(n.data_id) INTO v_datasets, v_ids
        FROM (SELECT c.dataset, c.data_id FROM unnest(v_sources) AS s
              CROSS JOIN LATERAL (SELECT c.dataset, c.data_id FROM chunk c
                                  WHERE c.dataset = s AND c.data_id > CASE WHEN s = v_next.after_dataset THEN v_next.after_id ELSE '' END
                                  ORDER BY c.dataset, c.data_id LIMIT v_next.batch) c
              WHERE s >= v_next.after_dataset ORDER BY c.dataset, c.data_id LIMIT v_next.batch) n;
        SELECT create_downstream_rows(array_agg(p.dataset), array_agg(p.data_id)) INTO v_woken
        FROM unnest(v_datasets, v_ids) AS p(dataset, data_id), chunk_of(p.dataset, p.data_id) AS c WHERE c.retired_from IS NULL;
        v_next.after_dataset := v_datasets[cardinality(v_datasets)];
        v_next.after_id := v_ids[cardinality(v_ids)];
    END IF;
    v_next.declared := least(v_next.declared + coalesce(cardinality(v_ids), 0), v_next.total);
    v_seconds := extract(epoch FROM clock_timestamp() - v_begin);
    IF coalesce(cardinality(v_ids), 0) < v_next.batch OR (v_next.kind = 'dataset' AND v_next.declared = v_next.total) THEN
        DELETE FROM declaring d WHERE d.kind = v_next.kind AND d.id = v_next.id;
    ELSE
        UPDATE declaring d
        SET declared = v_next.declared, after_dataset = v_next.after_dataset, after_id = v_next.after_id,
            batch = CASE WHEN v_seconds > 2 THEN greatest(v_next.batch / 2, 1) WHEN v_seconds < 1 THEN least(v_next.batch * 2, declaring_batch())
                         ELSE v_next.batch END
        WHERE d.kind = v_next.kind AND d.id = v_next.id;
    END IF;
    PERFORM notify_engines(v_woken);
    RETURN jsonb_build_object('kind', v_next.kind, 'id', v_next.id, 'namespace', namespace_of(v_next.id), 'declared', v_next.declared,
                              'total', v_next.total);
END $$;

-- Write chunks of a chunk source with all rows downstream, and return the jobs that have newly QUEUED tasks.
-- New chunks are inserted as they end up; chunks that exist, because someone published them, are changed as by an apply.
-- The caller holds level 0 for all reachable data sets. Locks levels 3, 4.
CREATE FUNCTION opendataflow.add_source_chunks(p_dataset text, p_ids text[], p_bounds jsonb[]) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    v_ready    boolean := NOT EXISTS (SELECT FROM job_output o WHERE o.dataset = p_dataset);
    v_new      text[];
    v_known    text[];
    v_bounds   jsonb[];
    v_datasets text[];
    v_queued   text[];
    v_event    text := require_event();
    v_actor    text := current_setting('opendataflow.actor', true);
BEGIN
    PERFORM require_plain_ids(p_ids);
    WITH made AS (
        INSERT INTO chunk (dataset, data_id, status, bounds, in_source, fence, published_at, reason)
        SELECT p_dataset, p.data_id, CASE WHEN v_ready THEN 'READY' ELSE 'DECLARED' END, p.bounds, true,
               CASE WHEN v_ready THEN next_fence() END, CASE WHEN v_ready THEN clock_timestamp() END,
               CASE WHEN v_ready THEN 'declared as there' END
        FROM unnest(p_ids, p_bounds) AS p(data_id, bounds) ORDER BY p.data_id
        ON CONFLICT DO NOTHING RETURNING data_id, fence, reason
    ), noted AS (
        INSERT INTO history (kind, owner, data_id, event, from_state, to_state, fence, actor, reason)
        SELECT 'chunk', p_dataset, m.data_id, v_event, 'DECLARED', 'READY', m.fence, v_actor, m.reason
        FROM made m WHERE v_ready
    )
    SELECT array_agg(m.data_id) INTO v_new FROM made m;
    v_queued := add_new_rows(p_dataset, v_new, v_ready);
    IF coalesce(cardinality(v_new), 0) < cardinality(p_ids) THEN
        SELECT array_agg(k.data_id), array_agg(k.bounds), array_agg(p_dataset) INTO v_known, v_bounds, v_datasets
        FROM (SELECT n.data_id, max(n.bounds::text)::jsonb AS bounds
              FROM (SELECT p.data_id, p.bounds, false AS is_new FROM unnest(p_ids, p_bounds) AS p(data_id, bounds)
                    UNION ALL SELECT i, NULL, true FROM unnest(v_new) AS i) n
              GROUP BY n.data_id HAVING NOT bool_or(n.is_new)) k;
        v_queued := v_queued || create_downstream_rows(v_datasets, v_known);
        PERFORM lock_chunks(v_datasets, v_known);
        PERFORM lock_tasks(array_agg(a.job), array_agg(a.data_id)) FROM affected_tasks(v_datasets, v_known) a;
        v_queued := v_queued || put_chunks(v_datasets, v_known, v_bounds);
    END IF;
    RETURN ARRAY(SELECT DISTINCT j FROM unnest(v_queued) AS j);
END $$;

-- Create the rows downstream of chunks that this transaction has just created, and return the jobs that have newly QUEUED tasks.
-- p_ready: the chunks are READY. If all rows of an id are new, its blockers are known, and its task is inserted as it ends up.
-- The other ids are left to create_downstream_rows(). Recursion: the levels of the graph of jobs.
CREATE FUNCTION opendataflow.add_new_rows(p_dataset text, p_ids text[], p_ready boolean) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    v_job      job;
    v_other    text;
    v_ids      text[];
    v_fresh    text[];  -- the ids whose chunks are all new
    v_new      text[];
    v_made     text[];
    v_blockers integer;
    v_queued   text[] := '{}';
    v_event    text := require_event();
    v_actor    text := current_setting('opendataflow.actor', true);
BEGIN
    IF p_ids IS NULL THEN
        RETURN v_queued;
    END IF;
    FOR v_job IN SELECT * FROM jobs_with_source(p_dataset) j ORDER BY j.id LOOP
        v_ids := p_ids;
        IF v_job.chunk_from IS NOT NULL OR v_job.chunk_to IS NOT NULL THEN
            v_ids := ARRAY(SELECT i FROM unnest(p_ids) AS i WHERE in_range(i, v_job.chunk_from, v_job.chunk_to));
        END IF;
        v_fresh := v_ids;
        FOR v_other IN SELECT d FROM datasets_of(v_job.id) AS d WHERE d <> p_dataset ORDER BY d LOOP
            IF spreads_to(v_job.id, v_other) THEN
                WITH made AS (
                    INSERT INTO chunk (dataset, data_id) SELECT v_other, i FROM unnest(v_ids) AS i ORDER BY i ON CONFLICT DO NOTHING RETURNING data_id
                ) SELECT array_agg(m.data_id) INTO v_new FROM made m;
                v_queued := v_queued || add_new_rows(v_other, v_new, false);
            ELSE
                v_new := ARRAY(SELECT i FROM unnest(v_ids) AS i WHERE NOT EXISTS (SELECT FROM chunk_of(v_other, i)));
            END IF;
            IF coalesce(cardinality(v_new), 0) < cardinality(v_ids) THEN
                v_fresh := ARRAY(SELECT i FROM unnest(v_fresh || v_new) AS i GROUP BY i HAVING count(*) = 2);
            END IF;
        END LOOP;
        SELECT count(*) - p_ready::integer INTO v_blockers FROM job_input i WHERE i.job = v_job.id;
        WITH made AS (
            INSERT INTO task (job, data_id, state, blockers, sort_key)
            SELECT v_job.id, i, CASE WHEN v_blockers = 0 THEN 'QUEUED' ELSE 'WAITING' END, v_blockers,
                   CASE WHEN v_job.descending THEN sort_key(i, true) ELSE k.key END
            FROM unnest(v_fresh) AS i CROSS JOIN LATERAL ascending_key(i) AS k ORDER BY i ON CONFLICT DO NOTHING RETURNING data_id
        ), noted AS (
            INSERT INTO history (kind, owner, data_id, event, from_state, to_state, actor)
            SELECT 'task', v_job.id, m.data_id, v_event, 'WAITING', 'QUEUED', v_actor
            FROM made m WHERE v_blockers = 0
        ) SELECT array_agg(m.data_id) INTO v_made FROM made m;
        IF v_blockers = 0 AND v_made IS NOT NULL THEN
            v_queued := v_queued || v_job.id;
        END IF;
        IF coalesce(cardinality(v_made), 0) < cardinality(v_ids) THEN
            SELECT v_queued || create_downstream_rows(array_agg(p_dataset), array_agg(n.data_id)) INTO v_queued
            FROM (SELECT i AS data_id FROM unnest(v_ids || v_made) AS i GROUP BY i HAVING count(*) = 1) n;
        END IF;
    END LOOP;
    RETURN v_queued;
END $$;
