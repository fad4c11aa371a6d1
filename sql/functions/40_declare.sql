-- Creation of chunks and tasks, and publication of chunks from outside.

-- Raise DF001 if an id has control characters or changes the direction of text. The models refuse the same characters.
CREATE FUNCTION opendataflow.require_plain_ids(p_ids text[]) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_id text;
BEGIN
    SELECT i INTO v_id FROM unnest(p_ids) AS i
    WHERE i ~ '[\u0001-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]' LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '"%" can''t be an id: an id can''t hold control characters', v_id USING ERRCODE = 'DF001';
    END IF;
END $$;

-- Create the rows that the given chunks require, and return the jobs that have newly QUEUED tasks.
-- Creates the chunks, one task for each job whose source is their data set, the chunks of all data sets of that job to which its
-- ids spread, and so on downstream. New chunks are DECLARED. New tasks are WAITING, QUEUED, DONE if an output is already READY, or
-- FAILED if their id returns and their job's last run has failed.
-- Retired chunks and tasks among them get back what they were, also out of the range of their job.
-- The caller holds level 0 for all reachable data sets. p_more_datasets, p_more_ids: chunks that it locks afterwards,
-- other than the given ones.
CREATE FUNCTION opendataflow.create_downstream_rows(p_datasets text[], p_ids text[], p_more_datasets text[] DEFAULT '{}',
                                                    p_more_ids text[] DEFAULT '{}') RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    v_datasets text[];
    v_ids      text[];
    v_jobs     text[];
    v_task_ids text[];
BEGIN
    PERFORM require_plain_ids(p_ids);
    WITH RECURSIVE reached(dataset, data_id) AS (
        SELECT p.dataset, p.data_id FROM unnest(p_datasets, p_ids) AS p(dataset, data_id)
        UNION
        SELECT l.dataset, r.data_id
        FROM reached r
        CROSS JOIN jobs_with_source(r.dataset) j
        CROSS JOIN datasets_of(j.id) AS l(dataset)
        WHERE spreads_to(j.id, l.dataset)
          AND (in_range(r.data_id, j.chunk_from, j.chunk_to)
               OR EXISTS (SELECT FROM chunk_of(l.dataset, r.data_id) c WHERE c.retired_from IS NOT NULL))
    )
    SELECT array_agg(dataset), array_agg(data_id) INTO v_datasets, v_ids FROM reached;

    INSERT INTO chunk (dataset, data_id)
    SELECT p.dataset, p.data_id FROM unnest(v_datasets, v_ids) AS p(dataset, data_id) ORDER BY 1, 2
    ON CONFLICT DO NOTHING;
    WITH made AS (
        INSERT INTO task (job, data_id, state, blockers, sort_key)
        SELECT DISTINCT j.id, i, 'WAITING', 1, sort_key(i, j.descending)
        FROM (SELECT p.dataset, array_agg(p.data_id) AS ids FROM unnest(v_datasets, v_ids) AS p(dataset, data_id) GROUP BY 1) AS g
        CROSS JOIN jobs_with_source(g.dataset) j
        CROSS JOIN unnest(g.ids) AS i
        WHERE in_range(i, j.chunk_from, j.chunk_to)
        ORDER BY 1, 2
        ON CONFLICT DO NOTHING
        RETURNING job, data_id
    )
    SELECT array_agg(job), array_agg(data_id) INTO v_jobs, v_task_ids FROM made;
    -- After all insertions, which wait for those of others, and before the new tasks look at the chunks.
    PERFORM revive(v_datasets, v_ids, p_more_datasets, p_more_ids);
    PERFORM recall_failures(v_jobs, v_task_ids), finish_published(v_jobs, v_task_ids);
    RETURN recount_blockers(v_jobs, v_task_ids);
END $$;

-- Set new tasks to FAILED if a run of their job has left an output FAILED: the id was withdrawn meanwhile, and the task deleted.
-- If that run did not start, the task is open. The caller holds the tasks' row locks.
CREATE FUNCTION opendataflow.recall_failures(p_jobs text[], p_ids text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE task t
    SET run = n.run,
        state = CASE WHEN n.started THEN 'FAILED' ELSE t.state END,
        blockers = CASE WHEN n.started THEN 0 ELSE t.blockers END,
        reason = CASE WHEN n.started THEN n.reason END
    FROM (SELECT w.at, c.run, coalesce(c.reason, r.message) AS reason, r.failure_class IS DISTINCT FROM 'NotStarted' AS started
          FROM unnest(p_jobs, p_ids) AS p(job, data_id)
          CROSS JOIN task_of(p.job, p.data_id) AS w
          CROSS JOIN LATERAL (SELECT f.run, f.reason FROM job_output o CROSS JOIN chunk_of(o.dataset, p.data_id) AS f
                              WHERE o.job = p.job AND f.status = 'FAILED' AND f.run IS NOT NULL
                              ORDER BY f.run DESC LIMIT 1) c
          CROSS JOIN LATERAL (SELECT * FROM run r WHERE r.id = c.run OFFSET 0) r
          WHERE w.state = 'WAITING' AND r.job = p.job OFFSET 0) n
    WHERE t.ctid = n.at;
END $$;

-- Set open tasks with a READY output to DONE, because another writer has published the result, or another job made it.
-- HELD and SKIPPED tasks keep their state and return to DONE at their release.
-- For a FAILED task, a chunk that its own last run wrote does not count. The caller holds the tasks' row locks.
CREATE FUNCTION opendataflow.finish_published(p_jobs text[], p_ids text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE task t
    SET state = CASE WHEN t.state IN ('HELD', 'SKIPPED') THEN t.state ELSE 'DONE' END,
        held_from = CASE WHEN t.state IN ('HELD', 'SKIPPED') THEN 'DONE' END,
        blockers = 0, due_at = NULL, forced = false,
        reason = CASE WHEN n.made_by IS NULL THEN 'published from outside' ELSE 'made by run ' || n.made_by END
    FROM (SELECT w.at, m.run AS made_by
          FROM unnest(p_jobs, p_ids) AS p(job, data_id)
          CROSS JOIN task_of(p.job, p.data_id) AS w
          CROSS JOIN LATERAL (SELECT c.run FROM job_output o CROSS JOIN chunk_of(o.dataset, p.data_id) AS c
                              WHERE o.job = p.job AND c.status = 'READY'
                                AND (coalesce(w.held_from, w.state) <> 'FAILED' OR c.run IS NULL OR c.run <> w.run)
                              ORDER BY c.run NULLS FIRST LIMIT 1) m
          WHERE w.state NOT IN ('RUNNING', 'DONE', 'RETIRED') AND w.held_from IS DISTINCT FROM 'DONE' OFFSET 0) n
    WHERE t.ctid = n.at;
    IF FOUND THEN
        PERFORM mark_incomplete(p_jobs, p_ids);
    END IF;
END $$;

-- Set `incomplete` of DONE tasks: whether one of their outputs was never made.
-- A chunk is made if it is READY or PENDING, also under a HOLD. The caller holds the tasks' row locks.
CREATE FUNCTION opendataflow.mark_incomplete(p_jobs text[], p_ids text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE task t SET incomplete = n.incomplete
    FROM (SELECT w.at, w.incomplete AS before, EXISTS (SELECT FROM missing_outputs(w.job, w.data_id)) AS incomplete
          FROM (SELECT DISTINCT * FROM unnest(p_jobs, p_ids)) AS p(job, data_id)
          CROSS JOIN task_of(p.job, p.data_id) AS w WHERE w.state = 'DONE' OFFSET 0) n
    WHERE t.ctid = n.at AND n.incomplete <> n.before;
END $$;

-- Mark DONE producers of the given chunks incomplete, or complete. The caller holds the tasks' row locks.
CREATE FUNCTION opendataflow.mark_producers_incomplete(p_datasets text[], p_ids text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM mark_incomplete(array_agg(o.job), array_agg(p.data_id))
    FROM unnest(p_datasets, p_ids) AS p(dataset, data_id) JOIN job_output o ON o.dataset = p.dataset;
END $$;

-- Delete tasks whose id is not in the scope of their job any more.
-- RUNNING, DONE, HELD, SKIPPED and RETIRED tasks stay: the id may return. The caller holds the tasks' row locks.
CREATE FUNCTION opendataflow.delete_out_of_scope(p_jobs text[], p_ids text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM task t USING unnest(p_jobs, p_ids) AS p(job, data_id), task_of(p.job, p.data_id) AS was
    WHERE t.ctid = was.at AND was.state NOT IN ('RUNNING', 'DONE', 'HELD', 'SKIPPED', 'RETIRED') AND NOT in_scope(was.job, was.data_id);
END $$;

-- Return whether an output that the last run of a task made is still there. True for a run of a job without outputs.
CREATE FUNCTION opendataflow.wrote_outputs(p_job text, p_id text, p_run bigint) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT opendataflow.wrote_one_of(ARRAY(SELECT o.dataset FROM opendataflow.job_output o WHERE o.job = p_job), p_id, p_run)
$$;

-- Return whether one of these outputs was made by a run and is still there. True if there are no outputs.
CREATE FUNCTION opendataflow.wrote_one_of(p_outputs text[], p_id text, p_run bigint) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT p_run IS NOT NULL
       AND (p_outputs = '{}'
            OR EXISTS (SELECT FROM unnest(p_outputs) AS o CROSS JOIN opendataflow.chunk_of(o, p_id) c
                       WHERE c.run = p_run AND coalesce(c.held_status, c.status) IN ('READY', 'PENDING')))
$$;

-- Return whether a chunk that a run has read is READY in another version now.
CREATE FUNCTION opendataflow.read_other_versions(p_run bigint) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM opendataflow.run_of(p_run) r
                   CROSS JOIN LATERAL unnest(r.reads, r.read_fences) AS f(dataset, fence)
                   CROSS JOIN LATERAL opendataflow.chunk_of(f.dataset, r.data_id) c
                   WHERE c.status = 'READY' AND c.fence <> f.fence)
$$;

-- Return whether all chunks that a run has read still have the version that it read, whatever their status.
CREATE FUNCTION opendataflow.read_present_versions(p_run bigint) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT NOT EXISTS (SELECT FROM opendataflow.run_of(p_run) r
                       CROSS JOIN LATERAL unnest(r.reads, r.read_fences) AS f(dataset, fence)
                       LEFT JOIN LATERAL opendataflow.chunk_of(f.dataset, r.data_id) c ON true
                       WHERE c.fence IS DISTINCT FROM f.fence)
$$;

-- Mark DONE consumers stale if a given chunk is READY in another version than the consumer's last run read.
-- Outputs that were published from outside are not stale: nobody knows from which version they were made.
-- The caller holds the tasks' row locks.
CREATE FUNCTION opendataflow.mark_stale(p_datasets text[], p_ids text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM job_input i WHERE i.dataset = ANY (p_datasets)) THEN
        RETURN;
    END IF;
    UPDATE task t SET stale = true
    FROM unnest(p_datasets, p_ids) AS p(dataset, data_id)
    JOIN job_input i ON i.dataset = p.dataset
    CROSS JOIN task_of(i.job, p.data_id) AS was
    WHERE t.ctid = was.at AND was.state = 'DONE' AND NOT was.stale
      AND (SELECT c.fence FROM chunk_of(p.dataset, p.data_id) c WHERE c.status = 'READY')
       <> (SELECT f.fence FROM run_of(was.run) r, unnest(r.reads, r.read_fences) AS f(dataset, fence) WHERE f.dataset = p.dataset)
      AND wrote_outputs(was.job, was.data_id, was.run);
END $$;

-- Declare chunks of one data set with their bounds (null for none), and return the jobs with newly QUEUED tasks.
-- Existing chunks keep their status. Locks levels 0, 3, 4. Raises DF002 if the data set is unknown.
CREATE FUNCTION opendataflow.declare_chunks(p_dataset text, p_ids text[], p_bounds jsonb[], p_actor text) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    v_datasets text[] := array_fill(p_dataset, ARRAY[cardinality(p_ids)]);
    v_queued   text[];
BEGIN
    PERFORM begin_event('declare', p_actor), require_dataset(p_dataset), lock_reachable(ARRAY[p_dataset]);
    v_queued := create_downstream_rows(v_datasets, p_ids);
    PERFORM lock_chunks(v_datasets, p_ids);
    UPDATE chunk c SET by_hand = true FROM unnest(p_ids) AS i, chunk_of(p_dataset, i) AS was WHERE c.ctid = was.at AND NOT was.by_hand;
    PERFORM set_chunk_bounds(p_dataset, p_ids, p_bounds), notify_engines(v_queued);
    RETURN v_queued;
END $$;

-- Set the bounds of chunks. Null keeps the present bounds. The caller holds the chunks' row locks.
-- Tasks that were done with other bounds are stale, as after an apply; so are RUNNING tasks at their end. Locks level 4.
CREATE FUNCTION opendataflow.set_chunk_bounds(p_dataset text, p_ids text[], p_bounds jsonb[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_other text[] := ARRAY(SELECT p.data_id FROM unnest(p_ids, p_bounds) AS p(data_id, bounds), chunk_of(p_dataset, p.data_id) AS c
                            WHERE jsonb_typeof(c.bounds) = 'object' AND c.bounds <> p.bounds);
BEGIN
    UPDATE chunk c SET bounds = p.bounds
    FROM unnest(p_ids, p_bounds) AS p(data_id, bounds), chunk_of(p_dataset, p.data_id) AS was
    WHERE c.ctid = was.at AND was.bounds IS DISTINCT FROM p.bounds AND p.bounds IS NOT NULL;
    IF v_other <> '{}' THEN
        PERFORM lock_tasks(array_agg(a.job), array_agg(a.data_id))
        FROM affected_tasks(array_fill(p_dataset, ARRAY[cardinality(v_other)]), v_other) a;
        UPDATE task t SET stale = true, bounds_changed = true
        FROM job_dataset l CROSS JOIN unnest(v_other) AS i CROSS JOIN LATERAL task_of(l.job, i) AS was
        WHERE l.dataset = p_dataset AND t.ctid = was.at AND NOT was.bounds_changed
          AND (was.state = 'RUNNING' OR (was.state = 'DONE' AND wrote_outputs(was.job, was.data_id, was.run)));
    END IF;
END $$;

-- Notify listening engines that jobs may have QUEUED tasks.
-- complete() does not call this function: its engine reads the jobs from the result.
-- A commit with a notification takes a lock that all such commits share.
CREATE FUNCTION opendataflow.notify_engines(p_jobs text[]) RETURNS void
LANGUAGE sql AS $$
    SELECT pg_notify('opendataflow_queued', j) FROM unnest(p_jobs) AS j
$$;

-- Publish chunks of one data set from outside: set them to READY, each with a new version.
-- The producer's open tasks become DONE. RUNNING chunks are refused. Returns one row for each id.
-- p_publisher: the name of the producer outside, if known.
-- Locks levels 0, 3, 4. Raises DF002 if the data set is unknown.
CREATE FUNCTION opendataflow.publish(p_dataset text, p_ids text[], p_actor text, p_reason text DEFAULT NULL,
                                     p_publisher text DEFAULT NULL)
RETURNS TABLE (data_id text, result text, status text, message text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_ids      text[] := ARRAY(SELECT DISTINCT i FROM unnest(p_ids) AS i);
    v_datasets text[] := array_fill(p_dataset, ARRAY[cardinality(v_ids)]);
    v_running  text[];
BEGIN
    PERFORM begin_event('publish', p_actor, p_reason), require_dataset(p_dataset), lock_reachable(ARRAY[p_dataset]),
            notify_engines(create_downstream_rows(v_datasets, v_ids)), lock_chunks(v_datasets, v_ids);
    PERFORM lock_tasks(array_agg(a.job), array_agg(a.data_id)) FROM affected_tasks(v_datasets, v_ids) a;
    v_running := ARRAY(SELECT i FROM unnest(v_ids) AS i, chunk_of(p_dataset, i) AS c WHERE c.status = 'RUNNING');
    UPDATE chunk c
    SET status = 'READY', held_status = NULL, fence = next_fence(), run = NULL,
        published_at = clock_timestamp(), reason = p_reason, publisher = p_publisher, by_hand = true
    FROM unnest(v_ids) AS i, chunk_of(p_dataset, i) AS was
    WHERE c.ctid = was.at AND was.status <> 'RUNNING';
    UPDATE chunk c SET by_hand = true FROM unnest(v_running) AS i, chunk_of(p_dataset, i) AS was WHERE c.ctid = was.at AND NOT was.by_hand;
    PERFORM finish_published(array_agg(o.job), array_agg(i))
    FROM job_output o, unnest(v_ids) AS i WHERE o.dataset = p_dataset AND i <> ALL (v_running);
    -- The publication fulfils a remembered resubmit of a held or skipped task.
    UPDATE task t SET again = false
    FROM job_output o, unnest(v_ids) AS i, task_of(o.job, i) AS was
    WHERE o.dataset = p_dataset AND t.ctid = was.at AND was.again AND was.state IN ('HELD', 'SKIPPED');
    UPDATE task t SET stale = false, bounds_changed = false
    FROM job_output o, unnest(v_ids) AS i, task_of(o.job, i) AS was
    WHERE o.dataset = p_dataset AND t.ctid = was.at AND was.stale AND was.state = 'DONE'
      AND NOT wrote_outputs(was.job, was.data_id, was.run);
    PERFORM mark_producers_incomplete(v_datasets, v_ids), mark_stale(v_datasets, v_ids);
    PERFORM notify_engines(recount_blockers(array_agg(a.job), array_agg(a.data_id))) FROM affected_tasks(v_datasets, v_ids) a;
    RETURN QUERY
    SELECT i, CASE WHEN i = ANY (v_running) THEN 'refused' ELSE 'done' END,
           CASE WHEN i = ANY (v_running) THEN 'RUNNING' ELSE 'READY' END,
           CASE WHEN i = ANY (v_running) THEN format('chunk %s of %s is being written by run %s: publish it when the run has ended',
                                                  i, p_dataset, c.run) END
    FROM unnest(v_ids) AS i, chunk_of(p_dataset, i) AS c;
END $$;
