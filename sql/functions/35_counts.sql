-- The number of tasks by state, and how many are stale: the sum of rows that every change adds. It is exact in every snapshot.
-- job_status(), list_jobs() and engines read it, because counting a million tasks would be too slow.

-- Trigger: count created and deleted tasks. The trigger task_changed (30_locks.sql) counts changes.
CREATE FUNCTION opendataflow.count_tasks() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO task_count (job, state, tasks)
        SELECT n.job, n.state, count(*) FROM new_rows n GROUP BY n.job, n.state;
    ELSE
        INSERT INTO task_count (job, state, tasks, stale)
        SELECT o.job, o.state, -count(*), -count(*) FILTER (WHERE o.state = 'DONE' AND o.stale)
        FROM old_rows o GROUP BY o.job, o.state;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER task_counted_made AFTER INSERT ON opendataflow.task REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION opendataflow.count_tasks();
CREATE TRIGGER task_counted_gone AFTER DELETE ON opendataflow.task REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION opendataflow.count_tasks();

-- Merge the count rows of each job that has more than 50 rows.
-- One statement deletes rows and inserts their sum, so that no row is lost or counted twice.
CREATE FUNCTION opendataflow.compact_counts() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(20134, 0) THEN
        RETURN;  -- another session is compacting
    END IF;
    WITH gone AS (
        DELETE FROM task_count c
        WHERE c.job = ANY (ARRAY(SELECT m.job FROM task_count m GROUP BY m.job HAVING count(*) > 50))
        RETURNING c.job, c.state, c.tasks, c.stale
    )
    INSERT INTO task_count (job, state, tasks, stale)
    SELECT g.job, g.state, sum(g.tasks), sum(g.stale) FROM gone g
    GROUP BY g.job, g.state HAVING sum(g.tasks) <> 0 OR sum(g.stale) <> 0;
END $$;

-- Return the number of tasks of a job in each state. Retired tasks are not counted.
CREATE FUNCTION opendataflow.counts_of(p_job text) RETURNS TABLE (state text, tasks bigint)
LANGUAGE sql STABLE AS $$
    SELECT c.state, sum(c.tasks)::bigint FROM opendataflow.task_count c
    WHERE c.job = p_job AND c.state <> 'RETIRED' GROUP BY c.state HAVING sum(c.tasks) <> 0
$$;

-- Return the number of DONE tasks of a job that are stale.
CREATE FUNCTION opendataflow.stale_of(p_job text) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT coalesce(sum(c.stale), 0)::bigint FROM opendataflow.task_count c WHERE c.job = p_job
$$;
