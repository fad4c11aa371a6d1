-- Keys of data sets and jobs: `namespace/id` for what a resource declares, the id alone for files and commands.
-- An id has no `/`. So no namespace can have a key of another one. See also keys.py.

-- Return the namespace of a key; empty if it has none.
CREATE FUNCTION opendataflow.namespace_of(p_key text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN strpos(p_key, '/') > 0 THEN split_part(p_key, '/', 1) ELSE '' END
$$;

-- Return the id of a key, without its namespace.
CREATE FUNCTION opendataflow.bare_id(p_key text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN strpos(p_key, '/') > 0 THEN split_part(p_key, '/', 2) ELSE p_key END
$$;

-- Raise DF001 if a text is neither an id nor `namespace/id`.
CREATE FUNCTION opendataflow.require_keys(p_keys text[]) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_key text;
BEGIN
    SELECT k INTO v_key FROM unnest(p_keys) AS k WHERE k !~ '^([^/]+/)?[^/]+$' LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '"%" is neither an id, which has no /, nor namespace/id', v_key USING ERRCODE = 'DF001';
    END IF;
END $$;
