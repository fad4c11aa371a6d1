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

-- Return whether the ids of a job become chunks of one of its data sets. Not of a data set of another namespace, which the job only
-- reads, and not of `today`, which belongs to all: their chunks would be tasks of the jobs of others.
CREATE FUNCTION opendataflow.spreads_to(p_job text, p_dataset text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT p_dataset <> 'today' AND opendataflow.namespace_of(p_dataset) = opendataflow.namespace_of(p_job)
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
