-- The three tables of the old framework, as views in schema dataflow, so that its users' SQL continues to work.
-- Writes use the same functions as all commands (86_view_rows.sql). Other writes are refused with one sentence.
--
-- The views read tables only, never a function or another view. They are replaced and not dropped.
-- Rights on the views and views on top of them therefore survive an upgrade.
-- If another relation has one of these names, none of the views is created.
-- The columns are the columns of the old tables, in the same order.

-- Return the relations that have one of the three names and do not belong to OpenDataFlow.
CREATE FUNCTION opendataflow.conflicting_relations() RETURNS SETOF text
LANGUAGE sql STABLE AS $$
    SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'dataflow' AND c.relname IN ('job', 'dataset', 'datastatus')
      AND NOT (c.relkind = 'v' AND coalesce(obj_description(c.oid, 'pg_class') LIKE 'OpenDataFlow:%', false))
    ORDER BY 1
$$;

-- Create the views and their triggers if they are missing and no relation conflicts. Return whether they were created.
-- Dropping the functions has dropped the triggers. INSTEAD OF triggers collect the rows of a statement.
-- The trigger at the end of the statement executes all rows at once.
-- The locks are thus taken in their order, and many rows cost little more than one.
CREATE FUNCTION opendataflow.make_views() RETURNS boolean
LANGUAGE plpgsql AS $make$
DECLARE
    v_view text;
BEGIN
    IF EXISTS (SELECT FROM conflicting_relations())
       OR EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = to_regclass('dataflow.datastatus') AND t.tgname = 'collect') THEN
        RETURN false;
    END IF;
    IF to_regnamespace('dataflow') IS NULL THEN
        CREATE SCHEMA dataflow;
    END IF;

    CREATE OR REPLACE VIEW dataflow.job AS
        SELECT l.job AS jobid, l.itemtype, l.dataset AS datasetid, l.itemvalue, j.modified::timestamp AS modified
        FROM (SELECT job, 'IN' AS itemtype, dataset, NULL::text AS itemvalue FROM opendataflow.job_input
              UNION ALL
              SELECT job, 'OUT', dataset, NULL FROM opendataflow.job_output
              UNION ALL
              SELECT job, name, NULL, value FROM opendataflow.job_env) l
        JOIN opendataflow.job j ON j.id = l.job
        WHERE NOT j.deleted;

    -- WITH prevents Postgres from making the view updatable by itself, DELETE included.
    CREATE OR REPLACE VIEW dataflow.dataset AS
        WITH d AS (SELECT id, hostname, database, schemaname, tablename, username, encryptedpass FROM opendataflow.dataset)
        SELECT d.id AS datasetid, d.hostname, d.database, d.schemaname, d.tablename, d.username, d.encryptedpass FROM d;

    -- OUT rows: every chunk that is neither DECLARED nor RETIRED, with the job that wrote it or the name that published it.
    -- IN rows: the chunks that running runs read.
    -- While the chunks of a data set are being declared, a PENDING row says so, because a view without it would look complete.
    CREATE OR REPLACE VIEW dataflow.datastatus AS
        SELECT c.dataset AS datasetid,
               coalesce((SELECT r.job FROM opendataflow.run r WHERE r.id = c.run),
                        CASE WHEN c.run IS NULL THEN c.publisher END,
                        (SELECT o.job FROM opendataflow.job_output o WHERE o.dataset = c.dataset), 'outside') AS jobid,
               c.data_id AS dataid, 'OUT' AS locktype, c.status,
               CASE WHEN c.status = 'READY' THEN c.published_at
                    ELSE coalesce((SELECT h.at
                                   FROM (SELECT * FROM opendataflow.history h
                                         WHERE h.kind = 'chunk' AND h.owner = c.dataset AND h.data_id = c.data_id OFFSET 0) h
                                   ORDER BY h.id DESC LIMIT 1), c.published_at) END::timestamp AS modified
        FROM opendataflow.chunk c WHERE c.status NOT IN ('DECLARED', 'RETIRED')
        UNION ALL
        SELECT d.dataset, r.job, r.data_id, 'IN', 'RUNNING', r.claimed_at::timestamp
        FROM opendataflow.run r CROSS JOIN LATERAL unnest(r.reads) AS d(dataset) WHERE r.state = 'RUNNING'
        UNION ALL
        SELECT n.id, 'outside', 'declaring ' || n.declared || ' of ' || n.total || ' chunks', 'OUT', 'PENDING', n.since::timestamp
        FROM opendataflow.declaring n WHERE n.kind = 'dataset';

    FOREACH v_view IN ARRAY ARRAY['job', 'dataset', 'datastatus'] LOOP
        EXECUTE format($$COMMENT ON VIEW dataflow.%I IS 'OpenDataFlow: replaces the table of this name of the old framework'$$, v_view);
        EXECUTE format('CREATE OR REPLACE TRIGGER collect INSTEAD OF INSERT OR UPDATE ON dataflow.%I '
                       'FOR EACH ROW EXECUTE FUNCTION opendataflow.collect_%s_row()', v_view, v_view);
        EXECUTE format('CREATE OR REPLACE TRIGGER done AFTER INSERT OR UPDATE ON dataflow.%I '
                       'FOR EACH STATEMENT EXECUTE FUNCTION opendataflow.write_rows()', v_view);
        EXECUTE format('CREATE OR REPLACE TRIGGER refuse INSTEAD OF DELETE ON dataflow.%I '
                       'FOR EACH ROW EXECUTE FUNCTION opendataflow.refuse_delete()', v_view);
    END LOOP;
    RETURN true;
END $make$;

-- Return the data id that a job would claim next; null if no task is QUEUED.
CREATE FUNCTION opendataflow.next_task(p_job text) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT t.data_id FROM opendataflow.task t
    WHERE t.job = p_job AND t.state = 'QUEUED' ORDER BY t.rank, t.sort_key LIMIT 1
$$;
