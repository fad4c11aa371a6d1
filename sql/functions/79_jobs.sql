-- Commands for whole jobs: parallelism, suspension, deletion. Scaling down and suspending drain: running runs continue.

-- scale_job() and suspend_job() return {job, before, after, parallelism, suspended, running}.
-- `before` and `after` are values of the changed limit.

-- Set the parallelism of a job and notify engines. Locks level 2. Raises DF001 and DF002 as lock_limits() does.
CREATE FUNCTION opendataflow.scale_job(p_job text, p_parallelism integer, p_actor text, p_reason text DEFAULT NULL)
RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    v_before integer;
BEGIN
    PERFORM begin_event('scale', p_actor, p_reason);
    v_before := (lock_limits(p_job)).parallelism;
    UPDATE job j SET parallelism = p_parallelism, modified = now() WHERE j.id = p_job AND j.parallelism <> p_parallelism;
    PERFORM notify_engines(ARRAY[p_job]);
    RETURN limits_of(p_job) || jsonb_build_object('before', v_before, 'after', p_parallelism);
END $$;

-- Suspend or resume a job and notify engines. Locks level 2. Raises DF001 and DF002 as lock_limits() does.
CREATE FUNCTION opendataflow.suspend_job(p_job text, p_suspended boolean, p_actor text, p_reason text DEFAULT NULL)
RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    v_before boolean;
BEGIN
    PERFORM begin_event(CASE WHEN p_suspended THEN 'suspend' ELSE 'resume' END, p_actor, p_reason);
    v_before := (lock_limits(p_job)).suspended;
    UPDATE job j SET suspended = p_suspended, modified = now() WHERE j.id = p_job AND j.suspended <> p_suspended;
    PERFORM notify_engines(ARRAY[p_job]);
    RETURN limits_of(p_job) || jsonb_build_object('before', v_before, 'after', p_suspended);
END $$;

-- Delete a job: release its data sets for another producer, and stop claims. Its tasks stay unchanged.
-- Its runs continue and are committed, or are cancelled if the job says so. An apply restores the job.
-- p_owner: delete only if the job belongs to this resource. Return false if there was nothing to delete.
-- Locks the apply lock, then levels 0 (exclusive), 2, 4, 5.
CREATE FUNCTION opendataflow.delete_job(p_job text, p_actor text, p_reason text DEFAULT NULL, p_owner text DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_cancel boolean;
BEGIN
    PERFORM begin_event('delete', p_actor, p_reason), lock_apply();
    PERFORM lock_datasets(ARRAY(SELECT l.dataset FROM job_dataset l WHERE l.job = p_job), true);
    UPDATE job j SET deleted = true, declared_as = NULL, modified = now()
    WHERE j.id = p_job AND NOT j.deleted AND (p_owner IS NULL OR j.owner = p_owner) RETURNING j.cancel_on_delete INTO v_cancel;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF v_cancel THEN
        PERFORM FROM cancel(p_job, ARRAY(SELECT t.data_id FROM task t WHERE t.job = p_job AND t.state = 'RUNNING'), p_actor,
                            coalesce(p_reason, 'the job was deleted'));
    END IF;
    DELETE FROM job_input i WHERE i.job = p_job;
    DELETE FROM job_output o WHERE o.job = p_job;
    DELETE FROM declaring d WHERE d.kind = 'job' AND d.id = p_job;
    RETURN true;
END $$;

-- Return all data sets and jobs that resources declared and that are not deleted.
CREATE FUNCTION opendataflow.declared_by_resources() RETURNS TABLE (kind text, id text, owner text, declared_as text)
LANGUAGE sql STABLE AS $$
    SELECT 'DataSet', d.id, d.owner, d.declared_as FROM opendataflow.dataset d WHERE d.owner IS NOT NULL
    UNION ALL
    SELECT 'DataFlowJob', j.id, j.owner, j.declared_as FROM opendataflow.job j WHERE j.owner IS NOT NULL AND NOT j.deleted
$$;

-- Remove the owner of a data set whose resource was deleted, and end its sharing. The data and its chunks stay. A declaration that is
-- under way ends. The next declaration in its namespace owns the data set.
CREATE FUNCTION opendataflow.disown_dataset(p_dataset text, p_owner text) RETURNS void
LANGUAGE sql AS $$
    WITH disowned AS (
        UPDATE opendataflow.dataset d SET owner = NULL, declared_as = NULL, share_with = '{}'
        WHERE d.id = p_dataset AND d.owner = p_owner RETURNING d.id
    )
    DELETE FROM opendataflow.declaring d USING disowned WHERE d.kind = 'dataset' AND d.id = disowned.id
$$;

-- Lock and return a job (level 2). Raise DF001 if the job is deleted and DF002 if it is unknown.
CREATE FUNCTION opendataflow.lock_job(p_job text) RETURNS opendataflow.job
LANGUAGE plpgsql AS $$
DECLARE
    v_job job;
BEGIN
    PERFORM require_job(p_job);
    SELECT * INTO v_job FROM job j WHERE j.id = p_job FOR NO KEY UPDATE;
    IF v_job.deleted THEN
        RAISE EXCEPTION 'job % is deleted: apply its file again', p_job USING ERRCODE = 'DF001';
    END IF;
    RETURN v_job;
END $$;

-- Lock a job to change its limits (level 2). Raise DF001 if the job is deleted or belongs to a resource.
-- The limits of a resource's job change in the resource, so that both never differ.
CREATE FUNCTION opendataflow.lock_limits(p_job text) RETURNS opendataflow.job
LANGUAGE plpgsql AS $$
DECLARE
    v_job job := lock_job(p_job);
BEGIN
    IF v_job.owner IS NOT NULL THEN
        RAISE EXCEPTION 'job % belongs to the DataFlowJob %: change its spec.parallelism or spec.suspend with kubectl', p_job, v_job.owner
            USING ERRCODE = 'DF001';
    END IF;
    RETURN v_job;
END $$;

-- Return the limits of a job and the number of its running tasks.
CREATE FUNCTION opendataflow.limits_of(p_job text) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('job', j.id, 'parallelism', j.parallelism, 'suspended', j.suspended,
        'running', (SELECT count(*) FROM opendataflow.task t WHERE t.job = j.id AND t.state = 'RUNNING'))
    FROM opendataflow.job j WHERE j.id = p_job
$$;

-- Trigger: write changed limits, suspensions and deletions of jobs into the history. Manual changes are recorded too.
CREATE FUNCTION opendataflow.job_changed() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO history (kind, owner, data_id, event, from_state, to_state, actor, reason)
    SELECT 'job', n.id, '', coalesce(nullif(current_setting('opendataflow.event', true), ''), 'UPDATE by hand'),
           c.from_state, c.to_state, coalesce(nullif(current_setting('opendataflow.actor', true), ''), session_user),
           nullif(current_setting('opendataflow.reason', true), '')
    FROM new_rows n JOIN old_rows o ON o.id = n.id
    CROSS JOIN LATERAL (VALUES
        ('parallelism ' || o.parallelism, 'parallelism ' || n.parallelism),
        (CASE WHEN o.suspended THEN 'suspended' ELSE 'active' END, CASE WHEN n.suspended THEN 'suspended' ELSE 'active' END),
        (CASE WHEN o.deleted THEN 'deleted' ELSE 'declared' END, CASE WHEN n.deleted THEN 'deleted' ELSE 'declared' END)
    ) AS c(from_state, to_state)
    WHERE c.from_state <> c.to_state;
    RETURN NULL;
END $$;
CREATE TRIGGER job_changed AFTER UPDATE ON opendataflow.job REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION opendataflow.job_changed();

-- Record the present data sets of a job once for all of its runs, and return the row's id.
-- The caller, a claim, holds the job's row. A change of a data set needs this row too.
-- The recorded data sets therefore equal the facts that the claim returns.
CREATE FUNCTION opendataflow.record_declaration(p_job text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_datasets jsonb;
    v_id       bigint;
BEGIN
    SELECT coalesce(jsonb_agg(to_jsonb(d) - ARRAY['encryptedpass', 'modified', 'owner', 'share_with', 'declared_as'] || jsonb_build_object('itemtype', l.itemtype)
                              ORDER BY l.itemtype, l.dataset), '[]') INTO v_datasets
    FROM job_dataset l JOIN dataset d ON d.id = l.dataset WHERE l.job = p_job;
    SELECT d.id INTO v_id
    FROM (SELECT * FROM declaration d WHERE d.job = p_job ORDER BY d.id DESC LIMIT 1) d WHERE d.datasets = v_datasets;
    IF NOT FOUND THEN
        INSERT INTO declaration (job, datasets) VALUES (p_job, v_datasets) RETURNING id INTO v_id;
    END IF;
    UPDATE job j SET declaration = v_id WHERE j.id = p_job;
    RETURN v_id;
END $$;

-- Trigger: clear the declaration of each job whose data sets have changed, so that the next claim records a new one.
-- Locks level 2.
CREATE FUNCTION opendataflow.dataset_changed() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    v_jobs text[];
BEGIN
    SELECT array_agg(l.job) INTO v_jobs
    FROM new_rows n JOIN old_rows o ON o.id = n.id JOIN job_dataset l ON l.dataset = n.id
    WHERE to_jsonb(n) - ARRAY['modified', 'owner', 'share_with', 'declared_as']
       <> to_jsonb(o) - ARRAY['modified', 'owner', 'share_with', 'declared_as'];
    PERFORM lock_jobs(v_jobs);
    UPDATE job j SET declaration = NULL WHERE j.id = ANY (v_jobs) AND j.declaration IS NOT NULL;
    RETURN NULL;
END $$;
CREATE TRIGGER dataset_changed AFTER UPDATE ON opendataflow.dataset REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION opendataflow.dataset_changed();
CREATE TRIGGER declaration_is_append_only BEFORE UPDATE ON opendataflow.declaration
    FOR EACH STATEMENT EXECUTE FUNCTION opendataflow.refuse_change();
