-- Cleaning of the history: delete old runs and events in small batches.
-- These rows are kept: the run of a chunk's present version, the last run of each task, forced runs, the newest run, events that made
-- a version READY, and the last event of each object. Chunks, tasks and declarations are never cleaned.

-- Return up to p_limit runs that ended before p_before, after the position (p_after_at, p_after_run).
-- `goes`: whether the run may be deleted.
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

-- Return whether a run may be deleted: it has ended, was not forced, and no task or chunk refers to it.
-- The newest run stays: operators ask for it, see require_history().
CREATE FUNCTION opendataflow.can_delete_run(p_run opendataflow.run) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT p_run.state <> 'RUNNING' AND NOT p_run.forced AND EXISTS (SELECT FROM opendataflow.run n WHERE n.id > p_run.id)
       AND NOT EXISTS (SELECT FROM opendataflow.task t WHERE t.job = p_run.job AND t.data_id = p_run.data_id AND t.run = p_run.id)
       AND NOT EXISTS (SELECT FROM unnest(p_run.writes) AS d
                       CROSS JOIN opendataflow.chunk_of(d, p_run.data_id) AS c
                       WHERE c.run = p_run.id)
$$;

-- Delete the given runs that may be deleted, with their steps. Return the number of deleted runs. Locks level 5.
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

-- Delete the events that may be deleted among the next p_limit events after p_after. If p_dry_run is true, only count them.
-- p_job: only events of this job and of the chunks that it writes; null for all.
-- Return {last, looked, events}. `last` is null if no event before p_before is left.
CREATE FUNCTION opendataflow.clean_events(p_job text, p_before timestamptz, p_after bigint, p_limit integer, p_dry_run boolean)
RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    v_ids    bigint[];
    v_last   bigint;
    v_looked bigint;
    v_old    bigint;
BEGIN
    SELECT max((n.event).id), count(*), count(*) FILTER (WHERE (n.event).at < p_before),
           array_agg((n.event).id) FILTER (WHERE (n.event).at < p_before AND can_delete_event(n.event, p_job, CASE WHEN p_dry_run THEN p_before END))
    INTO v_last, v_looked, v_old, v_ids
    FROM (SELECT h AS event FROM history h WHERE h.id > p_after ORDER BY h.id LIMIT p_limit) n;
    IF NOT p_dry_run THEN
        DELETE FROM history h WHERE h.id = ANY (v_ids);
    END IF;
    RETURN jsonb_build_object('last', CASE WHEN v_looked = p_limit AND v_old > 0 THEN v_last END, 'looked', v_looked,
                              'events', coalesce(cardinality(v_ids), 0));
END $$;

-- Return whether an event may be deleted.
-- A force, a publication without a run, events of existing runs and the last event of an object are kept.
-- p_gone_before: runs that may be deleted and ended before this time count as deleted; null if they are deleted already.
CREATE FUNCTION opendataflow.can_delete_event(p_event opendataflow.history, p_job text, p_gone_before timestamptz) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT (p_job IS NULL OR CASE p_event.kind WHEN 'chunk'
                THEN EXISTS (SELECT FROM opendataflow.job_output o WHERE o.job = p_job AND o.dataset = p_event.owner)
                ELSE p_event.owner = p_job END)
       AND p_event.event <> 'force'
       AND NOT (p_event.kind = 'chunk' AND p_event.to_state = 'READY' AND p_event.event <> 'complete')
       AND NOT EXISTS (SELECT FROM opendataflow.run r WHERE r.id = p_event.run
                                                      AND (p_gone_before IS NULL OR r.finished_at >= p_gone_before
                                                           OR r.finished_at IS NULL OR r.job <> coalesce(p_job, r.job)
                                                           OR NOT opendataflow.can_delete_run(r)))
       AND EXISTS (SELECT FROM opendataflow.history h WHERE h.kind = p_event.kind AND h.owner = p_event.owner
                                                        AND h.data_id = p_event.data_id AND h.id > p_event.id)
$$;
