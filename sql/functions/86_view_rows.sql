-- Writes through the views of schema dataflow. Each row is checked at once.
-- All rows of a statement are executed at its end, by the functions that all commands use.
-- Unsupported writes are refused with one sentence.

-- Raise DF001 with a message.
CREATE FUNCTION opendataflow.refuse_row(p_message text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', p_message USING ERRCODE = 'DF001';
END $$;

-- Trigger: refuse a DELETE and name the command to use instead.
CREATE FUNCTION opendataflow.refuse_delete() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM refuse_row('DELETE from dataflow.' || TG_TABLE_NAME || ' is refused: ' || CASE TG_TABLE_NAME
        WHEN 'datastatus' THEN 'what has happened is kept; set status = ''RESUBMIT'' (dataflow resubmit) to have it done again, '
                               'or end a run by dataflow cancel'
        WHEN 'job' THEN 'apply the job without the item, by dataflow apply -f FILE'
        ELSE 'data sets stay, with the history of their chunks; change one by UPDATE or dataflow apply -f FILE' END);
    RETURN NULL;
END $$;

-- Keep a row until the end of its statement.
CREATE FUNCTION opendataflow.collect_row(p_view text, p_content jsonb) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO opendataflow.view_row (view, content) VALUES (p_view, p_content)
$$;

-- Trigger: execute all collected rows of a statement.
CREATE FUNCTION opendataflow.write_rows() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    v_rows jsonb;
BEGIN
    WITH taken AS (DELETE FROM view_row r WHERE r.view = TG_TABLE_NAME RETURNING r.id, r.content)
    SELECT jsonb_agg(t.content ORDER BY t.id) INTO v_rows FROM taken t;
    IF v_rows IS NOT NULL THEN
        CASE TG_TABLE_NAME
            WHEN 'dataset' THEN PERFORM write_datasets(v_rows);
            WHEN 'job' THEN PERFORM write_jobs(v_rows);
            WHEN 'datastatus' THEN PERFORM write_statuses(v_rows);
        END CASE;
    END IF;
    RETURN NULL;
END $$;

-- Return the name for the history: the person whom the command line reports, else the role.
CREATE FUNCTION opendataflow.current_writer() RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT coalesce(nullif(current_setting('opendataflow.writer', true), ''), session_user)
$$;

-- Data sets ---------------------------------------------------------------------------------------------------

-- Trigger: check and collect a row of dataflow.dataset. Raise DF001 if it is invalid.
CREATE FUNCTION opendataflow.collect_dataset_row() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF coalesce(NEW.datasetid, '') = '' THEN
        PERFORM refuse_row('a row of dataset needs its datasetid');
    ELSIF TG_OP = 'UPDATE' AND NEW.datasetid <> OLD.datasetid THEN
        PERFORM refuse_row(format('data set %s keeps its id: insert a new one named %s', OLD.datasetid, NEW.datasetid));
    END IF;
    PERFORM collect_row('dataset', jsonb_build_object('op', TG_OP, 'id', NEW.datasetid, 'columns', to_jsonb(NEW) - 'datasetid'));
    RETURN NEW;
END $$;

-- Insert or update data sets. Takes the apply lock.
-- An INSERT may fill columns that are null and may repeat equal values. Raises DF001 if a value differs.
CREATE FUNCTION opendataflow.write_datasets(p_rows jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_row      record;
    v_existing jsonb;
BEGIN
    PERFORM lock_apply(), require_keys(array_agg(r.id)) FROM jsonb_to_recordset(p_rows) AS r(id text);
    FOR v_row IN SELECT r.* FROM jsonb_to_recordset(p_rows) AS r(op text, id text, columns jsonb) LOOP
        SELECT to_jsonb(d) INTO v_existing FROM dataset d WHERE d.id = v_row.id;
        IF v_row.op = 'INSERT' AND EXISTS (SELECT FROM jsonb_each_text(v_row.columns) AS c
                                           WHERE v_existing ->> c.key IS NOT NULL AND v_existing ->> c.key IS DISTINCT FROM c.value) THEN
            PERFORM refuse_row(format('data set %s is there already, with other columns: change it by UPDATE', v_row.id));
        END IF;
        PERFORM put_datasets(jsonb_build_array(coalesce(v_existing, '{}') || v_row.columns || jsonb_build_object('id', v_row.id)));
    END LOOP;
END $$;

-- Jobs --------------------------------------------------------------------------------------------------------

-- Trigger: check and collect a row of dataflow.job. Raise DF001 if it is invalid.
CREATE FUNCTION opendataflow.collect_job_row() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF coalesce(NEW.jobid, '') = '' OR coalesce(NEW.itemtype, '') = '' THEN
        PERFORM refuse_row('a row of job needs its jobid and its itemtype: IN, OUT, or the name of an environment item');
    ELSIF TG_OP = 'UPDATE' AND (NEW.jobid, NEW.itemtype, NEW.datasetid) IS DISTINCT FROM (OLD.jobid, OLD.itemtype, OLD.datasetid) THEN
        PERFORM refuse_row(format('of a row of job only the itemvalue is updated: what job %s reads and makes is changed by dataflow '
                                  'apply -f FILE, or by further rows', OLD.jobid));
    ELSIF NEW.itemtype IN ('IN', 'OUT') THEN
        IF coalesce(NEW.datasetid, '') = '' THEN
            PERFORM refuse_row(format('job %s: an %s row needs its datasetid', NEW.jobid, NEW.itemtype));
        ELSIF coalesce(NEW.itemvalue, '') <> '' THEN
            PERFORM refuse_row(format('job %s: an %s row has no itemvalue', NEW.jobid, NEW.itemtype));
        END IF;
    ELSIF coalesce(NEW.datasetid, '') <> '' THEN
        PERFORM refuse_row(format('job %s: the environment item %s has no data set; the itemtype of a data set is IN or OUT',
                                  NEW.jobid, NEW.itemtype));
    ELSIF NEW.itemvalue IS NULL THEN
        PERFORM refuse_row(format('job %s: the environment item %s needs its itemvalue', NEW.jobid, NEW.itemtype));
    ELSIF NEW.itemtype !~ '^[A-Za-z_][A-Za-z0-9_]*$' OR NEW.itemtype ~ '^DATAFLOW_|^(dataid|jobid|cmd)$' THEN
        PERFORM refuse_row(format('job %s: %s can''t be the name of an environment item: it is the framework''s own, or no '
                                  'shell can have it', NEW.jobid, NEW.itemtype));
    END IF;
    PERFORM collect_row('job', to_jsonb(NEW) - 'modified');
    RETURN NEW;
END $$;

-- Add items to jobs and apply the jobs. Takes the apply lock, then locks as apply() does.
-- A new job has the limits of the old framework: 1000 parallel runs, and each failure waits for a resubmit.
-- A new job is suspended until it has an input and an output.
-- Missing data sets are created, to be filled by later rows.
-- Raises DF001 if a data set would have two producers, or if jobs would wait for each other.
CREATE FUNCTION opendataflow.write_jobs(p_rows jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_ids  text[] := ARRAY(SELECT DISTINCT r.value ->> 'jobid' FROM jsonb_array_elements(p_rows) AS r ORDER BY 1);
    v_jobs jsonb;
    v_id   text;
BEGIN
    PERFORM begin_event('apply', current_writer()), lock_apply();
    PERFORM require_plain_ids(v_ids), require_keys(v_ids), require_plain_ids(array_agg(r.datasetid)), require_keys(array_agg(r.datasetid))
    FROM jsonb_to_recordset(p_rows) AS r(datasetid text);
    PERFORM refuse_row(format('job %s: the data set %s is made by the job %s already; one job makes a data set', r.jobid, o.dataset, o.job))
    FROM jsonb_to_recordset(p_rows) AS r(jobid text, itemtype text, datasetid text)
    CROSS JOIN LATERAL (SELECT o.job, o.dataset FROM job_output o WHERE o.dataset = r.datasetid OFFSET 0) o
    WHERE r.itemtype = 'OUT' AND o.job <> r.jobid;
    PERFORM refuse_row(format('the data set %s can''t be made by both %s and %s; one job makes a data set', r.datasetid, min(r.jobid), max(r.jobid)))
    FROM jsonb_to_recordset(p_rows) AS r(jobid text, itemtype text, datasetid text)
    WHERE r.itemtype = 'OUT' GROUP BY r.datasetid HAVING min(r.jobid) <> max(r.jobid);

    INSERT INTO job (id, parallelism, retry_limit, suspended)
    SELECT i, 1000, 0, true FROM unnest(v_ids) AS i ON CONFLICT DO NOTHING;
    SELECT jsonb_agg(merge_items(to_jsonb(j), g.items)) INTO v_jobs
    FROM (SELECT r.value ->> 'jobid' AS id, jsonb_agg(r.value) AS items FROM jsonb_array_elements(p_rows) AS r GROUP BY 1) g
    CROSS JOIN LATERAL (SELECT * FROM job j WHERE j.id = g.id OFFSET 0) j;
    INSERT INTO dataset (id, kind)
    SELECT DISTINCT r.datasetid, CASE r.datasetid WHEN 'today' THEN 'calendar' END
    FROM jsonb_to_recordset(p_rows) AS r(itemtype text, datasetid text) WHERE r.itemtype IN ('IN', 'OUT')
    ON CONFLICT DO NOTHING;
    PERFORM apply('[]', v_jobs, current_writer());
    FOREACH v_id IN ARRAY v_ids LOOP
        PERFORM refuse_cycle(v_id);
    END LOOP;
END $$;

-- Return the job in the format of apply(), with its present items and these rows.
CREATE FUNCTION opendataflow.merge_items(p_job jsonb, p_rows jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_id       text := p_job ->> 'id';
    v_inputs   text[] := ARRAY(SELECT i.dataset FROM job_input i WHERE i.job = v_id);
    v_outputs  text[] := ARRAY(SELECT o.dataset FROM job_output o WHERE o.job = v_id);
    v_env      jsonb := (SELECT coalesce(jsonb_object_agg(e.name, e.value), '{}') FROM job_env e WHERE e.job = v_id);
    v_complete boolean := cardinality(v_inputs) > 0 AND cardinality(v_outputs) > 0;
    v_linked   boolean := false;
    v_row      record;
BEGIN
    IF (p_job ->> 'deleted')::boolean THEN
        v_inputs := '{}'; v_outputs := '{}'; v_env := '{}'; v_complete := false;
    END IF;
    FOR v_row IN SELECT r.* FROM jsonb_to_recordset(p_rows) AS r(itemtype text, datasetid text, itemvalue text) LOOP
        CASE v_row.itemtype
            WHEN 'IN' THEN v_inputs := v_inputs || v_row.datasetid; v_linked := true;
            WHEN 'OUT' THEN v_outputs := v_outputs || v_row.datasetid; v_linked := true;
            ELSE v_env := v_env || jsonb_build_object(v_row.itemtype, v_row.itemvalue);
        END CASE;
    END LOOP;
    IF v_linked AND NOT v_complete THEN
        p_job := p_job || jsonb_build_object('suspended', cardinality(v_inputs) = 0 OR cardinality(v_outputs) = 0);
    END IF;
    RETURN p_job || jsonb_build_object(
        'inputs', ARRAY(SELECT DISTINCT d FROM unnest(v_inputs) AS d ORDER BY 1),
        'outputs', ARRAY(SELECT DISTINCT d FROM unnest(v_outputs) AS d ORDER BY 1), 'env', v_env);
END $$;

-- Raise DF001 if the job depends on itself. The message shows the path.
CREATE FUNCTION opendataflow.refuse_cycle(p_job text) RETURNS void
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_producers jsonb := '{}';  -- job -> a job that writes one of its inputs
    v_frontier  text[] := ARRAY[p_job];
    v_next      jsonb;
    v_path      text := p_job;
    v_step      text := p_job;
BEGIN
    WHILE cardinality(v_frontier) > 0 LOOP
        SELECT coalesce(jsonb_object_agg(n.job, n.producer), '{}') INTO v_next
        FROM (SELECT i.job, min(o.job) AS producer FROM unnest(v_frontier) AS f(job)
              CROSS JOIN LATERAL (SELECT o.job, o.dataset FROM job_output o WHERE o.job = f.job OFFSET 0) o
              CROSS JOIN LATERAL (SELECT i.job FROM job_input i WHERE i.dataset = o.dataset OFFSET 0) i
              CROSS JOIN LATERAL (SELECT FROM job j WHERE j.id = i.job AND NOT j.deleted OFFSET 0) j
              WHERE NOT v_producers ? i.job GROUP BY i.job) n;
        v_producers := v_producers || v_next;
        EXIT WHEN v_producers ? p_job;
        v_frontier := ARRAY(SELECT jsonb_object_keys(v_next));
    END LOOP;
    IF v_producers ? p_job THEN
        LOOP
            v_step := v_producers ->> v_step;
            v_path := v_step || ' -> ' || v_path;
            EXIT WHEN v_step = p_job;
        END LOOP;
        PERFORM refuse_row(format('the jobs would wait for each other: %s; none of them makes what it waits for', v_path));
    END IF;
END $$;
