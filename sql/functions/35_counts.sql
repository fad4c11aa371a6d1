-- The number of tasks by state: the sum of rows that every change adds. Exact in every snapshot; read by job_status,
-- list_jobs and engines, which must not count a million tasks to say how far a job is.

-- Of tasks that are made or go; changes of their states are counted where the history is written (30_locks.sql).
CREATE FUNCTION opendataflow.count_tasks() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO task_count (job, state, tasks)
        SELECT n.job, n.state, count(*) FROM new_rows n GROUP BY n.job, n.state;
    ELSE
        INSERT INTO task_count (job, state, tasks)
        SELECT o.job, o.state, -count(*) FROM old_rows o GROUP BY o.job, o.state;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER task_counted_made AFTER INSERT ON opendataflow.task REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION opendataflow.count_tasks();
CREATE TRIGGER task_counted_gone AFTER DELETE ON opendataflow.task REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION opendataflow.count_tasks();

-- Replaces the rows of each job that has many by one for each state. A row is added up by the one who deletes it, in the
-- same statement, so that none is lost or counted twice, whatever is added or read meanwhile.
CREATE FUNCTION opendataflow.compact_counts() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(20134, 0) THEN
        RETURN;  -- somebody else is at it
    END IF;
    WITH gone AS (
        DELETE FROM task_count c
        WHERE c.job = ANY (ARRAY(SELECT m.job FROM task_count m GROUP BY m.job HAVING count(*) > 50))
        RETURNING c.job, c.state, c.tasks
    )
    INSERT INTO task_count (job, state, tasks)
    SELECT g.job, g.state, sum(g.tasks) FROM gone g GROUP BY g.job, g.state HAVING sum(g.tasks) <> 0;
END $$;

-- The tasks of a job by state.
CREATE FUNCTION opendataflow.counts_of(p_job text) RETURNS TABLE (state text, tasks bigint)
LANGUAGE sql STABLE AS $$
    SELECT c.state, sum(c.tasks)::bigint FROM opendataflow.task_count c
    WHERE c.job = p_job GROUP BY c.state HAVING sum(c.tasks) <> 0
$$;
