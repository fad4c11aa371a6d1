-- Drop all functions, views and their types. The files that follow create them again.
-- Tables keep their rows. No column and no index depends on a function.
DO $$
DECLARE
    v_drop text;
BEGIN
    -- Collect all names before the first drop: one drop may cascade to other objects.
    FOREACH v_drop IN ARRAY ARRAY(
        SELECT format('DROP VIEW IF EXISTS %s CASCADE', c.oid::regclass)
        FROM pg_class c WHERE c.relnamespace = 'opendataflow'::regnamespace AND c.relkind = 'v'
        UNION ALL
        SELECT format('DROP FUNCTION IF EXISTS %s CASCADE', p.oid::regprocedure)
        FROM pg_proc p WHERE p.pronamespace = 'opendataflow'::regnamespace)
    LOOP
        EXECUTE v_drop;
    END LOOP;
END $$;
