-- How the functions are planned, in one place.
--
-- Their plans must not depend on statistics: a session keeps the plans that it made while the tables were small, and
-- new rows of a big apply have no statistics at all. Every query here is written as look-ups by key in the order in which
-- its joins stand, so that is what the planner is held to: no scans of whole tables, no other join order, nested loops
-- over indexes. The triggers join rows that have no index, so they get hash joins instead. Compiling plans costs more
-- than running them.
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
                                              'join_collapse_limit = 1'];
        END IF;
        FOREACH v_setting IN ARRAY v_settings LOOP
            EXECUTE format('ALTER FUNCTION %s SET %s', v_function.signature, v_setting);
        END LOOP;
    END LOOP;
    -- Claim sets it for its own queries; here it gets its bounds, and its caller the own value back.
    ALTER FUNCTION opendataflow.claim(uuid, text, integer, integer, bytea, text) SET lock_timeout = '10s';
END $$;
