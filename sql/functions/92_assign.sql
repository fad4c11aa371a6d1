-- The move of a data set and a job of files into a namespace, before a resource declares them there.

-- Move the data set and the job of an id, with all their rows, to the key `namespace/id`. Return {datasets, jobs, chunks, tasks}:
-- how many of each were moved. Locks all tables against writes until the end of the transaction.
-- Raises DF001 if a run of them is active, an engine of this machine may start one, or the new key exists; DF002 if the id is unknown.
CREATE FUNCTION opendataflow.assign(p_id text, p_namespace text, p_actor text) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    v_key    text := p_namespace || '/' || p_id;
    v_counts jsonb;
BEGIN
    PERFORM begin_event('assign', p_actor), lock_apply(), lock_tables(), refuse_assignment(p_id, p_namespace);
    v_counts := jsonb_build_object(
        'datasets', (SELECT count(*) FROM dataset d WHERE d.id = p_id), 'jobs', (SELECT count(*) FROM job j WHERE j.id = p_id),
        'chunks', (SELECT count(*) FROM chunk c WHERE c.dataset = p_id), 'tasks', (SELECT count(*) FROM task t WHERE t.job = p_id));
    -- The history keeps what has happened, so no trigger may write into it or refuse the change.
    PERFORM set_triggers(false);
    PERFORM assign_dataset(p_id, v_key), assign_job(p_id, v_key);
    PERFORM set_triggers(true);
    RETURN v_counts;
END $$;

-- Raise DF001 or DF002 if an id can't be moved to a namespace.
CREATE FUNCTION opendataflow.refuse_assignment(p_id text, p_namespace text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_key text := p_namespace || '/' || p_id;
    v_run bigint;
    v_host text;
BEGIN
    IF p_namespace !~ '^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$' THEN
        PERFORM refuse_row(format('"%s" can''t be a namespace: it has lower-case letters, digits and - only', p_namespace));
    ELSIF namespace_of(p_id) <> '' THEN
        PERFORM refuse_row(format('%s belongs to the namespace %s already', bare_id(p_id), namespace_of(p_id)));
    ELSIF p_id = 'today' THEN
        PERFORM refuse_row('the data set today is built in, and belongs to no namespace');
    ELSIF NOT EXISTS (SELECT FROM dataset d WHERE d.id = p_id) AND NOT EXISTS (SELECT FROM job j WHERE j.id = p_id) THEN
        RAISE EXCEPTION 'there is no data set and no job %', p_id USING ERRCODE = 'DF002';
    ELSIF EXISTS (SELECT FROM dataset d WHERE d.id = v_key) OR EXISTS (SELECT FROM job j WHERE j.id = v_key) THEN
        PERFORM refuse_row(format('there is %s already, and two histories can''t become one', v_key));
    END IF;
    IF EXISTS (SELECT FROM declaring d WHERE d.id = p_id) THEN
        PERFORM refuse_row(format('the chunks of %s are being declared: wait for the end', p_id));
    END IF;
    SELECT r.id INTO v_run FROM run r WHERE r.state = 'RUNNING' AND (r.job = p_id OR p_id = ANY (r.reads || r.writes)) LIMIT 1;
    IF FOUND THEN
        PERFORM refuse_row(format('run %s of %s is active: wait for its end', v_run, p_id));
    END IF;
    SELECT l.host INTO v_host FROM lease l WHERE l.kind = 'local' AND l.expires_at > clock_timestamp() LIMIT 1;
    IF FOUND THEN
        PERFORM refuse_row(format('an engine on %s works with this database: end it by Ctrl-C (a killed one counts for 20 more seconds)', v_host));
    END IF;
END $$;

-- Move the rows of a data set to another key. The triggers are disabled.
CREATE FUNCTION opendataflow.assign_dataset(p_id text, p_key text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO dataset SELECT n.* FROM dataset d, jsonb_populate_record(d, jsonb_build_object('id', p_key)) AS n WHERE d.id = p_id;
    UPDATE chunk c SET dataset = p_key WHERE c.dataset = p_id;
    UPDATE job_input i SET dataset = p_key WHERE i.dataset = p_id;
    UPDATE job_output o SET dataset = p_key WHERE o.dataset = p_id;
    UPDATE run r SET reads = array_replace(r.reads, p_id, p_key), writes = array_replace(r.writes, p_id, p_key) WHERE p_id = ANY (r.reads || r.writes);
    UPDATE declaration d SET datasets = (
        SELECT jsonb_agg(CASE WHEN e ->> 'id' = p_id THEN e || jsonb_build_object('id', p_key) ELSE e END ORDER BY n)
        FROM jsonb_array_elements(d.datasets) WITH ORDINALITY AS x(e, n))
    WHERE d.datasets @> jsonb_build_array(jsonb_build_object('id', p_id));
    UPDATE history h SET owner = p_key WHERE h.kind = 'chunk' AND h.owner = p_id;
    DELETE FROM dataset d WHERE d.id = p_id;
END $$;

-- Move the rows of a job to another key. The triggers are disabled.
CREATE FUNCTION opendataflow.assign_job(p_id text, p_key text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_table text;
BEGIN
    INSERT INTO job SELECT n.* FROM job j, jsonb_populate_record(j, jsonb_build_object('id', p_key)) AS n WHERE j.id = p_id;
    FOR v_table IN SELECT a.attrelid::regclass::text FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
                   WHERE c.relnamespace = 'opendataflow'::regnamespace AND c.relkind = 'r' AND a.attname = 'job' AND NOT a.attisdropped
    LOOP
        EXECUTE format('UPDATE %s SET job = $1 WHERE job = $2', v_table) USING p_key, p_id;
    END LOOP;
    UPDATE history h SET owner = p_key WHERE h.kind IN ('task', 'job') AND h.owner = p_id;
    UPDATE chunk c SET publisher = p_key WHERE c.publisher = p_id;
    DELETE FROM job j WHERE j.id = p_id;
END $$;
