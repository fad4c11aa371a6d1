-- Moving all state to another database (store/moving.py). The program copies the rows, table by table.

-- Return the tables that are copied, with their columns and the other tables that they refer to.
-- The migration fills the tables that are left out.
CREATE FUNCTION opendataflow.movable_tables() RETURNS TABLE (name text, columns text[], refers_to text[])
LANGUAGE sql STABLE AS $$
    SELECT c.relname::text,
           ARRAY(SELECT a.attname::text FROM pg_attribute a
                 WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attname),
           ARRAY(SELECT DISTINCT r.relname::text FROM pg_constraint f JOIN pg_class r ON r.oid = f.confrelid
                 WHERE f.conrelid = c.oid AND f.contype = 'f' AND r.oid <> c.oid)
    FROM pg_class c
    WHERE c.relnamespace = 'opendataflow'::regnamespace AND c.relkind = 'r' AND c.relname NOT IN ('migration', 'installed')
    ORDER BY c.relname
$$;

-- Lock all tables against writes and migrations until the end of the transaction. Readers continue.
-- The mode conflicts with itself: of two moves, one waits for the other.
CREATE FUNCTION opendataflow.lock_tables() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(20133, 0);
    EXECUTE (SELECT format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', string_agg(format('opendataflow.%I', t.name), ', '))
             FROM movable_tables() t);
END $$;

-- Disable or enable the triggers of all tables. Copied rows have their history and their counts already.
CREATE FUNCTION opendataflow.set_triggers(p_enabled boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_table text;
BEGIN
    FOR v_table IN SELECT t.name FROM movable_tables() t LOOP
        EXECUTE format('ALTER TABLE opendataflow.%I %s TRIGGER USER', v_table, CASE WHEN p_enabled THEN 'ENABLE' ELSE 'DISABLE' END);
    END LOOP;
END $$;

-- Return the last value of each sequence, and whether that value was used.
CREATE FUNCTION opendataflow.sequence_values() RETURNS TABLE (name text, last_value bigint, is_called boolean)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    FOR name IN SELECT c.relname FROM pg_class c
                WHERE c.relnamespace = 'opendataflow'::regnamespace AND c.relkind = 'S' ORDER BY c.relname
    LOOP
        EXECUTE format('SELECT s.last_value, s.is_called FROM opendataflow.%I s', name) INTO last_value, is_called;
        RETURN NEXT;
    END LOOP;
END $$;

-- Raise sequences to the given values. A sequence never goes back: its numbers may be in use.
CREATE FUNCTION opendataflow.raise_sequences(p_values jsonb) RETURNS void
LANGUAGE sql AS $$
    SELECT setval(format('opendataflow.%I', s.name)::regclass, greatest(s.last_value, v.last_value), s.is_called OR v.is_called)
    FROM jsonb_to_recordset(p_values) AS v(name text, last_value bigint, is_called boolean)
    JOIN opendataflow.sequence_values() s ON s.name = v.name
$$;

-- Mark this database as moved. Every later write is refused, also by programs that are connected already.
-- p_address: the new address, without a password.
CREATE FUNCTION opendataflow.mark_moved(p_address text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_table text;
BEGIN
    UPDATE installed SET moved_to = p_address, moved_at = clock_timestamp();
    FOR v_table IN SELECT t.name FROM movable_tables() t LOOP
        EXECUTE format('CREATE TRIGGER moved BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON opendataflow.%I '
                       'FOR EACH STATEMENT EXECUTE FUNCTION opendataflow.refuse_moved()', v_table);
    END LOOP;
END $$;

-- Trigger: raise DF001 with the new address.
CREATE FUNCTION opendataflow.refuse_moved() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'this database was moved to %: set DATAFLOW_DSN to that address',
        (SELECT i.moved_to FROM installed i) USING ERRCODE = 'DF001';
END $$;
