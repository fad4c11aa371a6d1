-- Functions, views and their types are replaced as a whole: everything here is made anew from the files that follow.
-- Tables keep their rows; no column and no index depends on a function.
DO $$
DECLARE
    v_drop text;
BEGIN
    -- All names before the first drop: one may take others with it.
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
