-- Cleaning the history: old runs and events go, in small batches. What answers for the present does not: the run behind a
-- chunk's current version, the last run of every task, what was forced, what made a version READY, and the last event of
-- everything. Chunks, tasks, and what runs have seen of data sets are never cleaned.

-- The ends of runs from (p_after_at, p_after_run) on that are older than p_before, at most p_limit of them, each with
-- whether it may go.
CREATE FUNCTION opendataflow.old_runs(p_job text, p_before timestamptz, p_after_at timestamptz, p_after_run bigint, p_limit integer)
RETURNS TABLE (run bigint, job text, host text, runs_home text, finished_at timestamptz, goes boolean)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
    SELECT r.id, r.job, r.host, r.runs_home, r.finished_at, can_delete_run(r)
    FROM run r
    WHERE r.job = p_job AND r.finished_at < p_before AND (r.finished_at, r.id) > (p_after_at, p_after_run)
    ORDER BY r.finished_at, r.id LIMIT p_limit;
END $$;

CREATE FUNCTION opendataflow.can_delete_run(p_run opendataflow.run) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT p_run.state <> 'RUNNING' AND NOT p_run.forced
       AND NOT EXISTS (SELECT FROM opendataflow.task w WHERE w.job = p_run.job AND w.data_id = p_run.data_id AND w.run = p_run.id)
       AND NOT EXISTS (SELECT FROM unnest(p_run.writes) AS d
                       CROSS JOIN opendataflow.chunk_of(d, p_run.data_id) AS c
                       WHERE c.run = p_run.id)
$$;

-- Deletes those of some runs that may go, with their steps. Returns how many they were.
CREATE FUNCTION opendataflow.clean_runs(p_runs bigint[]) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_runs bigint[];
    v_done bigint;
BEGIN
    SELECT array_agg((o.run).id) INTO v_runs
    FROM (SELECT r AS run FROM run r WHERE r.id = ANY (p_runs) ORDER BY r.id FOR UPDATE) o WHERE can_delete_run(o.run);
    DELETE FROM step s WHERE s.run = ANY (v_runs);
    DELETE FROM run r WHERE r.id = ANY (v_runs);
    GET DIAGNOSTICS v_done = ROW_COUNT;
    RETURN v_done;
END $$;

-- Looks at the p_limit events after p_after, of everything or only of a job with the chunks that it writes, and deletes
-- those that may go, or where p_dry only counts them. Returns {last, looked, events}; `last` is null where nothing that is
-- older than p_before is left.
CREATE FUNCTION opendataflow.clean_events(p_job text, p_before timestamptz, p_after bigint, p_limit integer, p_dry boolean)
RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    v_ids    bigint[];
    v_last   bigint;
    v_looked bigint;
    v_old    bigint;
BEGIN
    SELECT max((n.event).id), count(*), count(*) FILTER (WHERE (n.event).at < p_before),
           array_agg((n.event).id) FILTER (WHERE (n.event).at < p_before AND can_delete_event(n.event, p_job))
    INTO v_last, v_looked, v_old, v_ids
    FROM (SELECT h AS event FROM history h WHERE h.id > p_after ORDER BY h.id LIMIT p_limit) n;
    IF NOT p_dry THEN
        DELETE FROM history h WHERE h.id = ANY (v_ids);
    END IF;
    RETURN jsonb_build_object('last', CASE WHEN v_looked = p_limit AND v_old > 0 THEN v_last END, 'looked', v_looked,
                              'events', coalesce(cardinality(v_ids), 0));
END $$;

CREATE FUNCTION opendataflow.can_delete_event(p_event opendataflow.history, p_job text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT (p_job IS NULL OR CASE p_event.kind WHEN 'chunk'
                THEN EXISTS (SELECT FROM opendataflow.job_output o WHERE o.job = p_job AND o.dataset = p_event.owner)
                ELSE p_event.owner = p_job END)
       AND p_event.event <> 'force'
       AND NOT (p_event.kind = 'chunk' AND p_event.to_state = 'READY' AND p_event.event <> 'complete')
       AND NOT EXISTS (SELECT FROM opendataflow.run r WHERE r.id = p_event.run)
       AND EXISTS (SELECT FROM opendataflow.history h WHERE h.kind = p_event.kind AND h.owner = p_event.owner
                                                        AND h.data_id = p_event.data_id AND h.id > p_event.id)
$$;
