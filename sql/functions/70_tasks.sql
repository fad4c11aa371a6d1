-- What people ask for tasks: resubmit, hold, skip, force, release, cancel. Each verb takes ids of one job (of one data set, in the
-- next file) and returns one row for each id: result is done, unchanged, remembered, refused or unknown; message says why
-- where it is not done. A caller that wants all or nothing rolls back when a row is refused or unknown.

-- Level 3 and 4 for tasks of one job: the chunks that it writes, the tasks that depend on them, the tasks themselves.
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

-- Counts anew what depends on the outputs of tasks of one job, and tells engines.
CREATE FUNCTION opendataflow.update_dependents_of_outputs(p_job text, p_ids text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM notify_engines(recount_blockers(array_agg(x.job), array_agg(x.data_id)))
    FROM (SELECT p_job AS job, i AS data_id FROM unnest(p_ids) AS i
          UNION SELECT a.job, a.data_id
          FROM (SELECT array_agg(o.dataset) AS datasets, array_agg(i) AS ids
                FROM job_output o, unnest(p_ids) AS i WHERE o.job = p_job) AS c, affected_tasks(c.datasets, c.ids) a) x;
END $$;

-- What a verb has to say about one id, before it does it.
CREATE FUNCTION opendataflow.answer(p_result text, p_message text DEFAULT NULL) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$ SELECT jsonb_build_object('result', p_result, 'message', p_message) $$;

-- The rows of a verb's answer in natural order. p_answers: what it has to say about each id that there is a task for.
CREATE FUNCTION opendataflow.answers_of_tasks(p_job text, p_ids text[], p_answers jsonb)
RETURNS TABLE (data_id text, result text, state text, message text)
LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY
    SELECT i, coalesce(p_answers -> i ->> 'result', 'unknown'), w.state,
           CASE WHEN p_answers ? i THEN p_answers -> i ->> 'message' ELSE format('job %s has no task for %s', p_job, i) END
    FROM unnest(p_ids) AS i LEFT JOIN task_of(p_job, i) AS w ON true
    ORDER BY sort_key(i);
END $$;

-- Re-opens tasks whose rows and chunks are locked, with new budgets: before the natural order, forced ones before all.
-- Outputs become RESUBMIT together; one under HOLD remembers it, unless the task is forced.
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
    UPDATE task w
    SET state = 'WAITING', blockers = 1, rank = CASE WHEN p_forced THEN 0 ELSE 1 END, attempts = 0,
        infrastructure_attempts = 0, due_at = NULL, held_from = NULL, again = false, stale = false, forced = p_forced,
        reason = v_reason
    FROM unnest(p_ids) AS i, task_of(p_job, i) AS was WHERE w.ctid = was.at;
    PERFORM clear_test_failure(p_job);
END $$;

-- Asks for tasks again. RUNNING goes on and is opened again at its end; HELD remembers it until its release.
CREATE FUNCTION opendataflow.resubmit(p_job text, p_ids text[], p_actor text, p_reason text DEFAULT NULL)
RETURNS TABLE (data_id text, result text, state text, message text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_ids     text[] := ARRAY(SELECT DISTINCT i FROM unnest(p_ids) AS i);
    v_answers jsonb;
BEGIN
    PERFORM begin_event('resubmit', p_actor, p_reason), lock_outputs(p_job, v_ids);
    SELECT coalesce(jsonb_object_agg(w.data_id, CASE
        WHEN w.state = 'SKIPPED' THEN answer('refused', format('%s of job %s is skipped: release it first', w.data_id, p_job))
        WHEN w.state = 'DONE' AND NOT in_scope(p_job, w.data_id) THEN out_of_scope_answer(p_job, w.data_id)
        WHEN w.state = 'RUNNING' THEN answer('remembered', 'it is running: it runs again after its end')
        WHEN w.state = 'HELD' THEN answer('remembered', 'it is held: it runs again after its release')
        WHEN w.state IN ('WAITING', 'QUEUED') AND NOT EXISTS (
             SELECT FROM job_output o CROSS JOIN chunk_of(o.dataset, w.data_id) AS c
             WHERE o.job = p_job AND coalesce(c.held_status, c.status) IN ('READY', 'PENDING', 'FAILED'))
             THEN answer('unchanged', 'it has not run yet: there is nothing to do again')
        ELSE answer('done') END), '{}') INTO v_answers
    FROM unnest(v_ids) AS i, task_of(p_job, i) AS w;
    UPDATE task w SET again = true
    FROM unnest(ids_answered(v_answers, 'remembered')) AS i, task_of(p_job, i) AS was WHERE w.ctid = was.at;
    PERFORM reopen(p_job, ids_answered(v_answers, 'done'), p_reason), update_dependents_of_outputs(p_job, v_ids);
    RETURN QUERY SELECT * FROM answers_of_tasks(p_job, v_ids, v_answers);
END $$;

-- The ids of which a verb has to say this.
CREATE FUNCTION opendataflow.ids_answered(p_answers jsonb, p_result text) RETURNS text[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT ARRAY(SELECT t.key FROM jsonb_each(p_answers) AS t WHERE t.value ->> 'result' = p_result)
$$;

CREATE FUNCTION opendataflow.out_of_scope_answer(p_job text, p_id text) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT opendataflow.answer('refused', format(
        '%s is not among the ids of job %s any more: apply the job with data sets that have it', p_id, p_job))
$$;

-- Puts tasks aside that are still to do: HELD or SKIPPED, remembering what a release returns to. SKIPPED says that it will
-- not be done, so that it can also be said of what is HELD, and resubmit refuses it.
CREATE FUNCTION opendataflow.hold_or_skip(p_job text, p_ids text[], p_verb text, p_state text, p_reason text)
RETURNS TABLE (data_id text, result text, state text, message text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_from    text[] := '{WAITING,QUEUED,RETRYING,FAILED}';
    v_answers jsonb;
BEGIN
    IF p_state = 'SKIPPED' THEN
        v_from := v_from || 'HELD'::text;
    END IF;
    PERFORM lock_outputs(p_job, p_ids);
    SELECT coalesce(jsonb_object_agg(w.data_id, CASE
        WHEN w.state = ANY (v_from) THEN answer('done')
        WHEN w.state = p_state THEN answer('unchanged', format('it is %s already', lower(p_state)))
        WHEN w.state = 'RUNNING' THEN answer('refused', format('%s of job %s is running: %s it when the run has ended',
                                                               w.data_id, p_job, p_verb))
        ELSE answer('refused', format('%s of job %s is %s: only a task that is still to do can be %s',
                                      w.data_id, p_job, w.state, lower(p_state))) END), '{}') INTO v_answers
    FROM unnest(p_ids) AS i, task_of(p_job, i) AS w;
    UPDATE task w
    SET state = p_state, held_from = coalesce(w.held_from, w.state), blockers = 0, reason = coalesce(p_reason, w.reason)
    FROM unnest(ids_answered(v_answers, 'done')) AS i, task_of(p_job, i) AS was WHERE w.ctid = was.at;
    RETURN QUERY SELECT * FROM answers_of_tasks(p_job, p_ids, v_answers);
END $$;

-- Keeps tasks from running until their release.
CREATE FUNCTION opendataflow.hold(p_job text, p_ids text[], p_actor text, p_reason text DEFAULT NULL)
RETURNS TABLE (data_id text, result text, state text, message text)
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM begin_event('hold', p_actor, p_reason);
    RETURN QUERY SELECT * FROM hold_or_skip(p_job, ARRAY(SELECT DISTINCT i FROM unnest(p_ids) AS i), 'hold', 'HELD', p_reason);
END $$;

-- Says that tasks will not be done.
CREATE FUNCTION opendataflow.skip(p_job text, p_ids text[], p_actor text, p_reason text DEFAULT NULL)
RETURNS TABLE (data_id text, result text, state text, message text)
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM begin_event('skip', p_actor, p_reason);
    RETURN QUERY SELECT * FROM hold_or_skip(p_job, ARRAY(SELECT DISTINCT i FROM unnest(p_ids) AS i), 'skip', 'SKIPPED', p_reason);
END $$;

-- Lets tasks run next in spite of missing inputs, locked outputs and readers. Never beside another run: a chunk that is
-- being written refuses it. The history and the run keep that it was forced.
CREATE FUNCTION opendataflow.force(p_job text, p_ids text[], p_actor text, p_reason text DEFAULT NULL)
RETURNS TABLE (data_id text, result text, state text, message text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_ids     text[] := ARRAY(SELECT DISTINCT i FROM unnest(p_ids) AS i);
    v_answers jsonb;
BEGIN
    PERFORM begin_event('force', p_actor, p_reason), lock_outputs(p_job, v_ids);
    SELECT coalesce(jsonb_object_agg(w.data_id, CASE
        WHEN w.state = 'RUNNING' THEN answer('refused', format('%s of job %s is running (run %s): force it when the run has ended',
                                                               w.data_id, p_job, w.run))
        WHEN b.run IS NOT NULL THEN answer('refused', format(
             'chunk %s of %s is being written by run %s: force job %s when the run has ended', w.data_id, b.dataset, b.run, p_job))
        WHEN w.state IN ('DONE', 'HELD', 'SKIPPED') AND NOT in_scope(p_job, w.data_id) THEN out_of_scope_answer(p_job, w.data_id)
        WHEN w.state = 'QUEUED' AND w.forced THEN answer('unchanged', 'it is forced already')
        ELSE answer('done') END), '{}') INTO v_answers
    FROM unnest(v_ids) AS i
    CROSS JOIN task_of(p_job, i) AS w
    LEFT JOIN LATERAL (SELECT c.dataset, c.run FROM job_output o CROSS JOIN chunk_of(o.dataset, w.data_id) AS c
                       WHERE o.job = p_job AND c.status = 'RUNNING' ORDER BY c.dataset LIMIT 1) b ON true;
    PERFORM reopen(p_job, ids_answered(v_answers, 'done'), p_reason, true), update_dependents_of_outputs(p_job, v_ids);
    RETURN QUERY SELECT * FROM answers_of_tasks(p_job, v_ids, v_answers);
END $$;

-- HELD and SKIPPED tasks become what they were, with what was asked meanwhile; where their job has their id no more, they go.
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
    v_again := ARRAY(SELECT i FROM unnest(v_ids) AS i, task_of(p_job, i) AS w WHERE w.state IN ('HELD', 'SKIPPED') AND w.again);
    SELECT coalesce(jsonb_object_agg(w.data_id, CASE
        WHEN w.state IN ('HELD', 'SKIPPED') AND coalesce(w.held_from, '') <> 'DONE' AND NOT in_scope(p_job, w.data_id)
             THEN answer('done', format('it is not among the ids of job %s any more, and goes', p_job))
        WHEN w.state IN ('HELD', 'SKIPPED') THEN answer('done')
        ELSE answer('unchanged', format('it is %s, neither held nor skipped', w.state)) END), '{}') INTO v_answers
    FROM unnest(v_ids) AS i, task_of(p_job, i) AS w;
    UPDATE task w
    SET state = CASE WHEN w.held_from = 'QUEUED' THEN 'WAITING' ELSE w.held_from END,
        blockers = CASE WHEN w.held_from IN ('QUEUED', 'WAITING') THEN 1 ELSE 0 END,
        held_from = NULL, again = false,
        reason = CASE WHEN w.held_from IN ('RETRYING', 'FAILED')
                      THEN coalesce((SELECT r.message FROM run_of(w.run) r WHERE r.state <> 'SUCCEEDED'), w.reason) END
    FROM unnest(ids_answered(v_answers, 'done')) AS i, task_of(p_job, i) AS was WHERE w.ctid = was.at;
    PERFORM reopen(p_job, v_again, p_reason), delete_out_of_scope(array_fill(p_job, ARRAY[cardinality(v_ids)]), v_ids),
            update_dependents_of_outputs(p_job, v_ids);
    RETURN QUERY SELECT * FROM answers_of_tasks(p_job, v_ids, v_answers);
END $$;

-- Asks for the end of runs: their engine kills them within a second or two, and their tasks become FAILED, never RETRYING. One
-- that ends well before that is good.
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
    SELECT coalesce(jsonb_object_agg(w.data_id, CASE
        WHEN w.state <> 'RUNNING' THEN answer('refused', format('%s of job %s is %s: only a running task can be cancelled',
                                                                w.data_id, p_job, w.state))
        WHEN r.cancel_requested THEN answer('unchanged', format('run %s is being cancelled already', r.id))
        WHEN w.again THEN answer('done', format('run %s is cancelled in a moment; it was asked for again and runs once more', r.id))
        ELSE answer('done', format('run %s is cancelled in a moment', r.id)) END), '{}') INTO v_answers
    FROM unnest(v_ids) AS i CROSS JOIN task_of(p_job, i) AS w LEFT JOIN run_of(w.run) AS r ON true;
    v_runs := ARRAY(SELECT w.run FROM unnest(ids_answered(v_answers, 'done')) AS i, task_of(p_job, i) AS w ORDER BY 1);
    PERFORM lock_runs(v_runs);
    UPDATE run r SET cancel_requested = true FROM runs(v_runs) AS was WHERE r.ctid = was.at;
    -- Nothing has changed its state yet, but who asked and why is to be kept.
    INSERT INTO history (kind, owner, data_id, event, from_state, to_state, run, fence, actor, reason)
    SELECT 'task', r.job, r.data_id, require_event(), 'RUNNING', 'RUNNING', r.id, r.fence,
           current_setting('opendataflow.actor', true), p_reason
    FROM runs(v_runs) r ORDER BY r.id;
    RETURN QUERY SELECT * FROM answers_of_tasks(p_job, v_ids, v_answers);
END $$;
