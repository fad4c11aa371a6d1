-- Writes to dataflow.datastatus. Each written status is a request, executed by the functions that the commands use.

-- Trigger: check and collect a row of dataflow.datastatus. Raise DF001 if it is invalid.
CREATE FUNCTION opendataflow.collect_datastatus_row() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND (NEW.datasetid, NEW.jobid, NEW.dataid, NEW.locktype)
                            IS DISTINCT FROM (OLD.datasetid, OLD.jobid, OLD.dataid, OLD.locktype) THEN
        PERFORM refuse_row(format('of a row of datastatus only the status is updated: chunk %s of %s keeps its dataid, datasetid, '
                                  'jobid and locktype', OLD.dataid, OLD.datasetid));
    ELSIF '' IN (coalesce(NEW.datasetid, ''), coalesce(NEW.jobid, ''), coalesce(NEW.dataid, '')) THEN
        PERFORM refuse_row('a row of datastatus needs its dataid, datasetid and jobid');
    ELSIF NEW.dataid ~ '^declaring \d+ of \d+ chunks$' THEN
        PERFORM refuse_row(format('%s is no chunk: the chunks of data set %s are being declared', NEW.dataid, NEW.datasetid));
    ELSIF NEW.locktype IS NULL OR NEW.locktype NOT IN ('IN', 'OUT') THEN
        PERFORM refuse_row(format('the locktype of a row is OUT, not %s', coalesce(NEW.locktype, 'NULL')));
    ELSIF NEW.status IS NULL OR NEW.status NOT IN ('READY', 'RESUBMIT', 'HOLD', 'PENDING', 'FAILED', 'RUNNING') THEN
        PERFORM refuse_row(format('there is no status %s: a chunk is set to READY, RESUBMIT, HOLD, PENDING or FAILED',
                                  coalesce(NEW.status, 'NULL')));
    ELSIF TG_OP = 'INSERT' AND NEW.locktype = 'IN' THEN
        PERFORM refuse_row('an IN row can''t be inserted: a read lock comes and goes with a run; start the job with RunJob');
    ELSIF NEW.status = 'RUNNING' AND (TG_OP = 'INSERT' OR OLD.status <> 'RUNNING') THEN
        PERFORM refuse_row('nothing is set to RUNNING: only taking the task does that; start the job with RunJob or dataflow run');
    ELSIF TG_OP = 'UPDATE' AND OLD.locktype = 'IN' AND NEW.status NOT IN ('RUNNING', 'RESUBMIT') THEN
        PERFORM refuse_row(format('the IN row of job %s for %s goes when its run ends: dataflow cancel %1$s %2$s ends it',
                                  OLD.jobid, OLD.dataid));
    END IF;
    PERFORM collect_row('datastatus', jsonb_build_object(
        'dataset', NEW.datasetid, 'data_id', NEW.dataid, 'job', NEW.jobid, 'locktype', NEW.locktype, 'status', NEW.status,
        'was', CASE WHEN TG_OP = 'UPDATE' THEN OLD.status END,
        'touched', TG_OP = 'INSERT' OR NEW.modified IS DISTINCT FROM OLD.modified));
    RETURN NEW;
END $$;

-- Return the requests, in order, that set a chunk to status p_asked.
-- p_now: the present status. p_held: the status that a release would restore.
-- A held chunk that was never made keeps its row: it becomes RESUBMIT, not DECLARED, of which the view shows nothing.
-- READY over READY publishes a new version only if the row was inserted or has another `modified` (p_touched).
CREATE FUNCTION opendataflow.requests_of(p_asked text, p_now text, p_held text, p_touched boolean) RETURNS text[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN p_asked = 'READY' AND p_now = 'READY' THEN CASE WHEN p_touched THEN ARRAY['publish'] ELSE '{}' END
        WHEN p_asked = p_now THEN '{}'
        WHEN p_asked = 'HOLD' THEN ARRAY['hold_chunks']
        WHEN p_asked = 'RESUBMIT' AND p_now = 'HOLD' AND p_held = 'DECLARED' THEN ARRAY['release_chunks', 'set_chunks']
        WHEN p_asked = 'RESUBMIT' AND p_now = 'HOLD' THEN ARRAY['release_chunks', 'resubmit_chunks']
        WHEN p_asked = 'RESUBMIT' THEN ARRAY['resubmit_chunks']
        WHEN p_asked = p_held THEN ARRAY['release_chunks']
        WHEN p_asked = 'READY' AND p_now = 'PENDING' THEN ARRAY['accept']
        WHEN p_asked = 'READY' THEN ARRAY['publish']
        WHEN p_asked = 'FAILED' AND p_now = 'PENDING' THEN ARRAY['reject']
        ELSE ARRAY['set_chunks'] END
$$;

-- Lock chunks, the other outputs of their producers, and the dependent tasks at once (levels 0, 3, 4).
-- The requests that follow take no further locks. p_new: chunks that may have no row yet.
-- Raise DF002 if a data set is unknown, and a serialization failure if its jobs were changed meanwhile.
CREATE FUNCTION opendataflow.lock_requested(p_datasets text[], p_ids text[], p_new boolean[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_siblings text[] := ARRAY(SELECT DISTINCT m FROM unnest(p_datasets) AS d, unnest(sibling_outputs(d)) AS m);
    v_datasets text[];
    v_ids      text[];
BEGIN
    PERFORM require_dataset(d) FROM unnest(p_datasets) AS d;
    PERFORM lock_reachable(v_siblings);
    SELECT array_agg(m), array_agg(p.data_id) INTO v_datasets, v_ids
    FROM unnest(p_datasets, p_ids) AS p(dataset, data_id), unnest(sibling_outputs(p.dataset)) AS m;
    IF NOT v_datasets <@ v_siblings THEN
        RAISE EXCEPTION 'the jobs of these data sets were changed at this moment: try again'
            USING ERRCODE = 'serialization_failure';
    END IF;
    PERFORM notify_engines(create_downstream_rows(array_agg(p.dataset), array_agg(p.data_id), v_datasets, v_ids))
    FROM unnest(p_datasets, p_ids, p_new) AS p(dataset, data_id, is_new) WHERE p.is_new;
    PERFORM lock_chunks(v_datasets, v_ids);
    PERFORM lock_tasks(array_agg(a.job), array_agg(a.data_id)) FROM affected_tasks(v_datasets, v_ids) a;
END $$;

-- Execute status requests, all or nothing. p_rows: [{dataset, data_id, job, locktype, status, was, touched}].
-- RESUBMIT of an IN row resubmits the outputs of the job. Locks levels 0, 3, 4.
-- Raises DF001 if a request is refused, and a serialization failure if a status has changed meanwhile.
CREATE FUNCTION opendataflow.write_statuses(p_rows jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_requested jsonb;
    v_datasets  text[];
    v_ids       text[];
    v_new       boolean[];
    v_request   record;
    v_message   text;
BEGIN
    PERFORM begin_event('declare', current_writer());
    SELECT coalesce(jsonb_agg(a), '[]'), array_agg(a.dataset), array_agg(a.data_id), array_agg(a.was IS NULL)
    INTO v_requested, v_datasets, v_ids, v_new
    FROM (SELECT r.dataset, r.data_id, r.status, r.job, r.was, r.touched FROM jsonb_to_recordset(p_rows)
              AS r(dataset text, data_id text, status text, job text, locktype text, was text, touched boolean)
          WHERE r.locktype = 'OUT'
          UNION
          SELECT o.dataset, r.data_id, r.status, r.job, 'RUNNING', false FROM jsonb_to_recordset(p_rows)
              AS r(dataset text, data_id text, status text, job text, locktype text, was text, touched boolean)
          CROSS JOIN LATERAL (SELECT o.dataset FROM job_output o WHERE o.job = r.job OFFSET 0) o
          WHERE r.locktype = 'IN' AND r.status = 'RESUBMIT') a;
    IF v_requested = '[]' THEN
        RETURN;
    END IF;
    PERFORM refuse_row(format('chunk %s of %s can''t be set to two statuses at once', a.data_id, a.dataset))
    FROM jsonb_to_recordset(v_requested) AS a(dataset text, data_id text, status text)
    GROUP BY a.dataset, a.data_id HAVING min(a.status) <> max(a.status);
    PERFORM lock_requested(v_datasets, v_ids, v_new);
    IF EXISTS (SELECT FROM jsonb_to_recordset(v_requested) AS a(dataset text, data_id text, was text)
               CROSS JOIN chunk_of(a.dataset, a.data_id) AS c
               WHERE a.was <> c.status) THEN
        RAISE EXCEPTION 'the status of these chunks has changed at this moment: try again' USING ERRCODE = 'serialization_failure';
    END IF;

    -- A row keeps the jobid that it was inserted with, whatever its status.
    UPDATE chunk c SET by_hand = true
    FROM jsonb_to_recordset(v_requested) AS a(dataset text, data_id text, was text), chunk_of(a.dataset, a.data_id) AS was
    WHERE c.ctid = was.at AND a.was IS NULL AND NOT was.by_hand;
    UPDATE chunk c SET publisher = a.job
    FROM jsonb_to_recordset(v_requested) AS a(dataset text, data_id text, job text, was text), chunk_of(a.dataset, a.data_id) AS was
    WHERE c.ctid = was.at AND a.was IS NULL AND was.run IS NULL AND was.publisher IS NULL;

    FOR v_request IN
        SELECT q.place, q.request, a.dataset, a.status, a.publisher, array_agg(a.data_id) AS ids
        FROM (SELECT n.dataset, n.data_id, n.status, max(n.job) AS publisher, bool_or(n.touched) AS touched
              FROM jsonb_to_recordset(v_requested) AS n(dataset text, data_id text, status text, job text, touched boolean)
              GROUP BY 1, 2, 3) a
        CROSS JOIN chunk_of(a.dataset, a.data_id) AS c
        CROSS JOIN LATERAL unnest(requests_of(a.status, c.status, c.held_status, a.touched)) WITH ORDINALITY AS q(request, place)
        GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
    LOOP
        EXECUTE 'SELECT a.message FROM ' || CASE v_request.request
            WHEN 'publish' THEN 'publish($1, $2, $3, NULL, $4)'
            WHEN 'set_chunks' THEN 'set_chunks($1, $2, $5, $3, NULL, $4)'
            ELSE format('%I($1, $2, $3)', v_request.request) END
            || ' AS a WHERE a.result IN (''refused'', ''unknown'') LIMIT 1'
        INTO v_message
        USING v_request.dataset, v_request.ids, current_writer(), v_request.publisher, v_request.status;
        IF v_message IS NOT NULL THEN
            PERFORM refuse_row(v_message);
        END IF;
    END LOOP;
END $$;
