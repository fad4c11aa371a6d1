-- Planner settings of all functions.
--
-- Plans must not depend on statistics. A session keeps the plans that it made while the tables were small.
-- New rows of a big apply have no statistics at all. Every query here is written as look-ups by key, in join order.
-- The settings therefore require index look-ups, nested loops and the written join order. A bitmap reads all entries before
-- the first row: a claim would read and sort all QUEUED tasks of its job.
-- The triggers join rows that have no index and use hash joins instead. JIT compilation costs more than these queries.
DO $$
DECLARE
    v_function record;
    v_setting  text;
    v_settings text[];
BEGIN
    FOR v_function IN
        SELECT p.oid::regprocedure AS signature, p.prorettype = 'trigger'::regtype AS is_trigger
        FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
        WHERE p.pronamespace = 'opendataflow'::regnamespace
          AND (l.lanname = 'plpgsql' OR p.proname IN ('job_status', 'why', 'verify', 'inspection', 'describe_chunk', 'describe_run'))
    LOOP
        v_settings := ARRAY['search_path = opendataflow, pg_temp', 'plan_cache_mode = force_generic_plan', 'jit = off'];
        IF v_function.is_trigger THEN
            v_settings := v_settings || ARRAY['enable_nestloop = off', 'enable_hashjoin = on'];
        ELSE
            v_settings := v_settings || ARRAY['enable_seqscan = off', 'enable_hashjoin = off', 'enable_mergejoin = off', 'enable_memoize = off',
                                              'enable_bitmapscan = off', 'join_collapse_limit = 1'];
        END IF;
        FOREACH v_setting IN ARRAY v_settings LOOP
            EXECUTE format('ALTER FUNCTION %s SET %s', v_function.signature, v_setting);
        END LOOP;
    END LOOP;
    -- claim() changes lock_timeout for its own queries.
    -- This setting limits its other waits and restores the caller's value.
    ALTER FUNCTION opendataflow.claim(uuid, text, integer, integer, bytea, text) SET lock_timeout = '10s';
END $$;
