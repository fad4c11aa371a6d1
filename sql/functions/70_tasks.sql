-- Commands for tasks: resubmit, hold, skip, force, release, cancel. 75_chunks.sql has the commands for chunks.
-- Each command takes ids of one job and returns one row for each id, in natural order.
-- `result` is done, unchanged, remembered, refused or unknown. `message` gives the reason if the result is not done.
-- A caller that requires all or nothing rolls back if a row is refused or unknown.
-- Each command raises DF002 if the job is unknown.

-- Lock tasks of one job, their output chunks, and the tasks that depend on these chunks (levels 0, 3, 4).
-- Raise a serialization failure if the job's outputs were changed meanwhile.
CREATE FUNCTION opendataflow.lock_outputs(p_job text, p_ids text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_outputs  text[];
    v_datasets text[];
    v_ids      text[];
BEGIN
    PERFORM require_job(p_job);
    v_outputs := ARRAY(SELECT o.dataset FROM job_output o WHERE o.job = p_job ORDER BY o.dataset);
    PERFORM lock_datasets(v_outputs);
    IF v_outputs <> ARRAY(SELECT o.dataset FROM job_output o WHERE o.job = p_job ORDER BY o.dataset) THEN
        RAISE EXCEPTION 'job % was changed at this moment: try again', p_job USING ERRCODE = 'serialization_failure';
    END IF;
    SELECT array_agg(o.dataset), array_agg(i) INTO v_datasets, v_ids
    FROM job_output o, unnest(p_ids) AS i WHERE o.job = p_job;
    PERFORM lock_chunks(v_datasets, v_ids);
    PERFORM lock_tasks(array_agg(x.job), array_agg(x.data_id))
    FROM (SELECT p_job AS job, i AS data_id FROM unnest(p_ids) AS i
          UNION SELECT a.job, a.data_id FROM affected_tasks(v_datasets, v_ids) a) x;
END $$;

-- Recount the blockers of tasks that depend on the outputs of one job's tasks, and notify engines.
CREATE FUNCTION opendataflow.update_dependents_of_outputs(p_job text, p_ids text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM notify_engines(recount_blockers(array_agg(x.job), array_agg(x.data_id)))
    FROM (SELECT p_job AS job, i AS data_id FROM unnest(p_ids) AS i
          UNION SELECT a.job, a.data_id
          FROM (SELECT array_agg(o.dataset) AS datasets, array_agg(i) AS ids
                FROM job_output o, unnest(p_ids) AS i WHERE o.job = p_job) AS c, affected_tasks(c.datasets, c.ids) a) x;
END $$;

-- Build the result of a command for one id.
CREATE FUNCTION opendataflow.answer(p_result text, p_message text DEFAULT NULL) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$ SELECT jsonb_build_object('result', p_result, 'message', p_message) $$;

-- Return the rows of a command in natural order. p_answers: the result of each id that has a task.
CREATE FUNCTION opendataflow.answers_of_tasks(p_job text, p_ids text[], p_answers jsonb)
RETURNS TABLE (data_id text, result text, state text, message text)
LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY
    SELECT i, coalesce(p_answers -> i ->> 'result', 'unknown'), t.state,
           CASE WHEN p_answers ? i THEN p_answers -> i ->> 'message' ELSE format('job %s has no task for %s', p_job, i) END
    FROM unnest(p_ids) AS i LEFT JOIN task_of(p_job, i) AS t ON true
    ORDER BY sort_key(i);
END $$;

-- Reopen tasks with new retry budgets: resubmitted tasks before the natural order, forced tasks before all others.
-- All outputs become RESUBMIT together.
-- An output under HOLD becomes RESUBMIT at its release, unless the task is forced.
-- The caller holds the row locks of the tasks and chunks.
CREATE FUNCTION opendataflow.reopen(p_job text, p_ids text[], p_reason text, p_forced boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_reason text := coalesce(p_reason, CASE WHEN p_forced THEN 'forced' ELSE 'resubmitted' END);
BEGIN
    UPDATE chunk c
    SET status = CASE WHEN c.status = 'HOLD' AND NOT p_forced THEN 'HOLD' ELSE 'RESUBMIT' END,
        held_status = CASE WHEN c.status = 'HOLD' AND NOT p_forced THEN 'RESUBMIT' END,
        reason = v_reason
    FROM job_output o, unnest(p_ids) AS i, chunk_of(o.dataset, i) AS was
    WHERE o.job = p_job AND c.ctid = was.at
      AND CASE WHEN p_forced THEN was.status <> 'RESUBMIT'
               ELSE coalesce(was.held_status, was.status) IN ('READY', 'PENDING', 'FAILED') END;
    UPDATE task t
    SET state = 'WAITING', blockers = 1, rank = CASE WHEN p_forced THEN 0 ELSE 1 END, attempts = 0,
        infrastructure_attempts = 0, due_at = NULL, held_from = NULL, again = false, stale = false, bounds_changed = false, incomplete = false, looks = 0, forced = p_forced,
        reason = v_reason
    FROM unnest(p_ids) AS i, task_of(p_job, i) AS was WHERE t.ctid = was.at;
    PERFORM clear_gates(p_job);
END $$;

-- Resubmit tasks. A RUNNING task runs again after its end. A HELD task runs again after its release.
-- Locks levels 0, 3, 4.
CREATE FUNCTION opendataflow.resubmit(p_job text, p_ids text[], p_actor text, p_reason text DEFAULT NULL)
RETURNS TABLE (data_id text, result text, state text, message text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_ids     text[] := ARRAY(SELECT DISTINCT i FROM unnest(p_ids) AS i);
    v_answers jsonb;
BEGIN
    PERFORM begin_event('resubmit', p_actor, p_reason), lock_outputs(p_job, v_ids);
    SELECT coalesce(jsonb_object_agg(t.data_id, CASE
        WHEN t.state = 'SKIPPED' THEN answer('refused', format('%s of job %s is skipped: release it first', t.data_id, p_job))
        WHEN t.state IN ('DONE', 'RETIRED') AND NOT in_scope(p_job, t.data_id) THEN out_of_scope_answer(p_job, t.data_id)
        WHEN t.state = 'RUNNING' THEN answer('remembered', 'it is running: it runs again after its end')
        WHEN t.state = 'HELD' THEN answer('remembered', 'it is held: it runs again after its release')
        WHEN t.state IN ('WAITING', 'QUEUED') AND NOT EXISTS (
             SELECT FROM job_output o CROSS JOIN chunk_of(o.dataset, t.data_id) AS c
             WHERE o.job = p_job AND coalesce(c.held_status, c.status) IN ('READY', 'PENDING', 'FAILED'))
             THEN answer('unchanged', 'it has not run yet: there is nothing to do again')
        ELSE answer('done') END), '{}') INTO v_answers
    FROM unnest(v_ids) AS i, task_of(p_job, i) AS t;
    UPDATE task t SET again = true
    FROM unnest(ids_answered(v_answers, 'remembered')) AS i, task_of(p_job, i) AS was WHERE t.ctid = was.at;
    PERFORM reopen(p_job, ids_answered(v_answers, 'done'), p_reason), update_dependents_of_outputs(p_job, v_ids);
    RETURN QUERY SELECT * FROM answers_of_tasks(p_job, v_ids, v_answers);
END $$;

-- Return the ids that have the given result.
CREATE FUNCTION opendataflow.ids_answered(p_answers jsonb, p_result text) RETURNS text[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT ARRAY(SELECT t.key FROM jsonb_each(p_answers) AS t WHERE t.value ->> 'result' = p_result)
$$;

-- Return the refusal for an id that is not in the scope of its job any more.
CREATE FUNCTION opendataflow.out_of_scope_answer(p_job text, p_id text) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT opendataflow.answer('refused', format(
        '%s is not among the ids of job %s any more: apply the job with data sets that have it', p_id, p_job))
$$;

-- Set unfinished tasks to HELD or SKIPPED, and remember the state that a release restores.
-- SKIPPED means that the task will not be done. A HELD task can be skipped, and resubmit refuses a SKIPPED task.
-- A DONE task can be skipped if one of its outputs was never made: that output will not be made.
CREATE FUNCTION opendataflow.hold_or_skip(p_job text, p_ids text[], p_verb text, p_state text, p_reason text)
RETURNS TABLE (data_id text, result text, state text, message text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_allowed text[] := '{WAITING,QUEUED,RETRYING,FAILED}';
    v_answers jsonb;
BEGIN
    IF p_state = 'SKIPPED' THEN
        v_allowed := v_allowed || 'HELD'::text;
    END IF;
    PERFORM create_tasks_of_days(p_job, p_ids), lock_outputs(p_job, p_ids);
    SELECT coalesce(jsonb_object_agg(t.data_id, CASE
        WHEN t.state = ANY (v_allowed) OR (t.incomplete AND p_state = 'SKIPPED') THEN answer('done')
        WHEN t.state = p_state THEN answer('unchanged', format('it is %s already', lower(p_state)))
        WHEN t.state = 'RUNNING' THEN answer('refused', format('%s of job %s is running: %s it when the run has ended',
                                                               t.data_id, p_job, p_verb))
        ELSE answer('refused', format('%s of job %s is %s: only a task that is still to do can be %s',
                                      t.data_id, p_job, t.state, lower(p_state))) END), '{}') INTO v_answers
    FROM unnest(p_ids) AS i, task_of(p_job, i) AS t;
    UPDATE task t
    SET state = p_state, held_from = coalesce(t.held_from, t.state), blockers = 0, incomplete = false,
        reason = coalesce(p_reason, t.reason)
    FROM unnest(ids_answered(v_answers, 'done')) AS i, task_of(p_job, i) AS was WHERE t.ctid = was.at;
    RETURN QUERY SELECT * FROM answers_of_tasks(p_job, p_ids, v_answers);
END $$;

-- Hold tasks until their release. Locks levels 0, 3, 4.
CREATE FUNCTION opendataflow.hold(p_job text, p_ids text[], p_actor text, p_reason text DEFAULT NULL)
RETURNS TABLE (data_id text, result text, state text, message text)
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM begin_event('hold', p_actor, p_reason);
    RETURN QUERY SELECT * FROM hold_or_skip(p_job, ARRAY(SELECT DISTINCT i FROM unnest(p_ids) AS i), 'hold', 'HELD', p_reason);
END $$;

-- Mark tasks as not to be done. Locks levels 0, 3, 4.
CREATE FUNCTION opendataflow.skip(p_job text, p_ids text[], p_actor text, p_reason text DEFAULT NULL)
RETURNS TABLE (data_id text, result text, state text, message text)
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM begin_event('skip', p_actor, p_reason);
    RETURN QUERY SELECT * FROM hold_or_skip(p_job, ARRAY(SELECT DISTINCT i FROM unnest(p_ids) AS i), 'skip', 'SKIPPED', p_reason);
END $$;

-- Force tasks to run next, in spite of missing inputs, locked outputs and readers.
-- A chunk that another run is writing refuses the force. The history and the run record the force.
-- Locks levels 0, 3, 4.
CREATE FUNCTION opendataflow.force(p_job text, p_ids text[], p_actor text, p_reason text DEFAULT NULL)
RETURNS TABLE (data_id text, result text, state text, message text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_ids     text[] := ARRAY(SELECT DISTINCT i FROM unnest(p_ids) AS i);
    v_answers jsonb;
BEGIN
    PERFORM begin_event('force', p_actor, p_reason), lock_outputs(p_job, v_ids);
    SELECT coalesce(jsonb_object_agg(t.data_id, CASE
        WHEN t.state = 'RUNNING' THEN answer('refused', format('%s of job %s is running (run %s): force it when the run has ended',
                                                               t.data_id, p_job, t.run))
        WHEN b.run IS NOT NULL THEN answer('refused', format(
             'chunk %s of %s is being written by run %s: force job %s when the run has ended', t.data_id, b.dataset, b.run, p_job))
        WHEN t.state IN ('DONE', 'HELD', 'SKIPPED', 'RETIRED') AND NOT in_scope(p_job, t.data_id) THEN out_of_scope_answer(p_job, t.data_id)
        WHEN t.state = 'QUEUED' AND t.forced THEN answer('unchanged', 'it is forced already')
        WHEN t.state = 'DONE' AND NOT t.stale THEN answer('done', 'a warning: it was DONE and not stale, and is made once more')
        ELSE answer('done') END), '{}') INTO v_answers
    FROM unnest(v_ids) AS i
    CROSS JOIN task_of(p_job, i) AS t
    LEFT JOIN LATERAL (SELECT c.dataset, c.run FROM job_output o CROSS JOIN chunk_of(o.dataset, t.data_id) AS c
                       WHERE o.job = p_job AND c.status = 'RUNNING' ORDER BY c.dataset LIMIT 1) b ON true;
    PERFORM reopen(p_job, ids_answered(v_answers, 'done'), p_reason, true), update_dependents_of_outputs(p_job, v_ids);
    RETURN QUERY SELECT * FROM answers_of_tasks(p_job, v_ids, v_answers);
END $$;

-- Release HELD and SKIPPED tasks: restore their state and apply remembered requests.
-- Tasks whose id is out of scope are deleted. Locks levels 0, 3, 4.
CREATE FUNCTION opendataflow.release(p_job text, p_ids text[], p_actor text, p_reason text DEFAULT NULL)
RETURNS TABLE (data_id text, result text, state text, message text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_ids     text[] := ARRAY(SELECT DISTINCT i FROM unnest(p_ids) AS i);
    v_again   text[];
    v_answers jsonb;
BEGIN
    PERFORM begin_event('release', p_actor, p_reason), lock_outputs(p_job, v_ids);
    v_again := ARRAY(SELECT i FROM unnest(v_ids) AS i, task_of(p_job, i) AS t WHERE t.state IN ('HELD', 'SKIPPED') AND t.again);
    SELECT coalesce(jsonb_object_agg(t.data_id, CASE
        WHEN t.state IN ('HELD', 'SKIPPED') AND coalesce(t.held_from, '') <> 'DONE' AND NOT in_scope(p_job, t.data_id)
             THEN answer('done', format('it is not among the ids of job %s any more, and goes', p_job))
        WHEN t.state IN ('HELD', 'SKIPPED') THEN answer('done')
        ELSE answer('unchanged', format('it is %s, neither held nor skipped', t.state)) END), '{}') INTO v_answers
    FROM unnest(v_ids) AS i, task_of(p_job, i) AS t;
    UPDATE task t
    SET state = CASE WHEN t.held_from = 'QUEUED' THEN 'WAITING' ELSE t.held_from END,
        blockers = CASE WHEN t.held_from IN ('QUEUED', 'WAITING') THEN 1 ELSE 0 END,
        held_from = NULL, again = false,
        reason = CASE WHEN t.held_from IN ('RETRYING', 'FAILED')
                      THEN coalesce((SELECT r.message FROM run_of(t.run) r WHERE r.state <> 'SUCCEEDED'), t.reason) END
    FROM unnest(ids_answered(v_answers, 'done')) AS i, task_of(p_job, i) AS was WHERE t.ctid = was.at;
    PERFORM reopen(p_job, v_again, p_reason), mark_incomplete(array_fill(p_job, ARRAY[cardinality(v_ids)]), v_ids), delete_out_of_scope(array_fill(p_job, ARRAY[cardinality(v_ids)]), v_ids),
            update_dependents_of_outputs(p_job, v_ids);
    RETURN QUERY SELECT * FROM answers_of_tasks(p_job, v_ids, v_answers);
END $$;

-- Request the cancellation of runs. The engine kills them within two seconds, and their tasks become FAILED.
-- A run that succeeds before that is committed. Locks levels 4, 5.
CREATE FUNCTION opendataflow.cancel(p_job text, p_ids text[], p_actor text, p_reason text DEFAULT NULL)
RETURNS TABLE (data_id text, result text, state text, message text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_ids     text[] := ARRAY(SELECT DISTINCT i FROM unnest(p_ids) AS i);
    v_runs    bigint[];
    v_answers jsonb;
BEGIN
    PERFORM begin_event('cancel', p_actor, p_reason), require_job(p_job),
            lock_tasks(array_fill(p_job, ARRAY[cardinality(v_ids)]), v_ids);
    SELECT coalesce(jsonb_object_agg(t.data_id, CASE
        WHEN t.state <> 'RUNNING' THEN answer('refused', format('%s of job %s is %s: only a running task can be cancelled',
                                                                t.data_id, p_job, t.state))
        WHEN r.cancel_requested THEN answer('unchanged', format('run %s is being cancelled already', r.id))
        WHEN t.again THEN answer('done', format('run %s is cancelled in a moment; it was asked for again and runs once more', r.id))
        ELSE answer('done', format('run %s is cancelled in a moment', r.id)) END), '{}') INTO v_answers
    FROM unnest(v_ids) AS i CROSS JOIN task_of(p_job, i) AS t LEFT JOIN run_of(t.run) AS r ON true;
    v_runs := ARRAY(SELECT t.run FROM unnest(ids_answered(v_answers, 'done')) AS i, task_of(p_job, i) AS t ORDER BY 1);
    PERFORM lock_runs(v_runs);
    UPDATE run r SET cancel_requested = true FROM runs(v_runs) AS was WHERE r.ctid = was.at;
    -- No state has changed yet, but the history must record the actor and the reason.
    INSERT INTO history (kind, owner, data_id, event, from_state, to_state, run, fence, actor, reason)
    SELECT 'task', r.job, r.data_id, require_event(), 'RUNNING', 'RUNNING', r.id, r.fence,
           current_setting('opendataflow.actor', true), p_reason
    FROM runs(v_runs) r ORDER BY r.id;
    RETURN QUERY SELECT * FROM answers_of_tasks(p_job, v_ids, v_answers);
END $$;
