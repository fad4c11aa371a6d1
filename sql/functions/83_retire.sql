-- Retired chunks and tasks: their id was withdrawn. They stay in the history, are never claimed and are not counted.
-- An id that returns gets back what it was.

-- Return whether a task has an id that is in one of its source data sets, whatever the range of the job.
-- Always true for a deleted job, whose tasks stay unchanged.
CREATE FUNCTION opendataflow.has_source(p_job text, p_id text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM opendataflow.job j WHERE j.id = p_job AND j.deleted)
        OR EXISTS (SELECT FROM opendataflow.job_source s CROSS JOIN opendataflow.chunk_of(s.dataset, p_id) c
                   WHERE s.job = p_job AND c.retired_from IS NULL)
$$;

-- Retire chunks. A RUNNING chunk is retired when its run ends. The caller holds the chunks' row locks.
CREATE FUNCTION opendataflow.retire_chunks(p_datasets text[], p_ids text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE chunk c
    SET retired_from = c.status, status = CASE WHEN c.status = 'RUNNING' THEN 'RUNNING' ELSE 'RETIRED' END
    FROM unnest(p_datasets, p_ids) AS p(dataset, data_id), chunk_of(p.dataset, p.data_id) AS was
    WHERE c.ctid = was.at AND was.retired_from IS NULL;
END $$;

-- Retire tasks that are DONE, HELD or SKIPPED. A RUNNING task is retired when its run ends.
-- The caller holds the tasks' row locks.
CREATE FUNCTION opendataflow.retire_tasks(p_jobs text[], p_ids text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE task t SET retired_from = t.state, state = 'RETIRED'
    FROM unnest(p_jobs, p_ids) AS p(job, data_id), task_of(p.job, p.data_id) AS was
    WHERE t.ctid = was.at AND was.state IN ('DONE', 'HELD', 'SKIPPED');
END $$;

-- Bring back the retired chunks among the given ones, and the retired tasks that have a given chunk as a source.
-- p_more_datasets, p_more_ids: further chunks that the caller will lock. If anything is brought back, all these chunks and
-- the tasks that depend on them are locked here (levels 3, 4), so that the caller does not lock a chunk after a task.
CREATE FUNCTION opendataflow.revive(p_datasets text[], p_ids text[], p_more_datasets text[], p_more_ids text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_datasets text[] := p_datasets || p_more_datasets;
    v_ids      text[] := p_ids || p_more_ids;
    v_jobs     text[];
    v_task_ids text[];
BEGIN
    SELECT array_agg(n.job), array_agg(n.data_id) INTO v_jobs, v_task_ids
    FROM (SELECT DISTINCT j.id AS job, i AS data_id
          FROM (SELECT p.dataset, array_agg(p.data_id) AS ids FROM unnest(p_datasets, p_ids) AS p(dataset, data_id) GROUP BY 1) AS g
          CROSS JOIN jobs_with_source(g.dataset) j CROSS JOIN unnest(g.ids) AS i) n
    CROSS JOIN task_of(n.job, n.data_id) AS t WHERE t.state = 'RETIRED';
    IF v_jobs IS NULL AND NOT EXISTS (SELECT FROM unnest(p_datasets, p_ids) AS p(dataset, data_id), chunk_of(p.dataset, p.data_id) AS c
                                      WHERE c.retired_from IS NOT NULL) THEN
        RETURN;
    END IF;
    PERFORM lock_chunks(v_datasets, v_ids);
    PERFORM lock_tasks(array_agg(a.job), array_agg(a.data_id)) FROM affected_tasks(v_datasets, v_ids) a;
    UPDATE chunk c SET status = CASE WHEN c.status = 'RETIRED' THEN c.retired_from ELSE c.status END, retired_from = NULL
    FROM unnest(p_datasets, p_ids) AS p(dataset, data_id), chunk_of(p.dataset, p.data_id) AS was
    WHERE c.ctid = was.at AND was.retired_from IS NOT NULL;
    UPDATE task t SET state = t.retired_from, retired_from = NULL
    FROM unnest(v_jobs, v_task_ids) AS p(job, data_id), task_of(p.job, p.data_id) AS was
    WHERE t.ctid = was.at AND was.state = 'RETIRED';
    PERFORM mark_incomplete(v_jobs, v_task_ids);
    PERFORM mark_stale(array_agg(i.dataset), array_agg(p.data_id))
    FROM unnest(v_jobs, v_task_ids) AS p(job, data_id) JOIN job_input i ON i.job = p.job;
END $$;
