-- `dataflow db restored`: gives a database that was restored or copied to the operators that are to lead it.

-- Raise DF001 if an engine or an operator works with this database.
CREATE FUNCTION opendataflow.require_no_engine() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_host text;
BEGIN
    SELECT l.host INTO v_host FROM lease l WHERE l.expires_at > clock_timestamp() LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '% works with this database: stop it, and try again; one that was killed counts for 20 seconds', v_host
            USING ERRCODE = 'DF001';
    END IF;
END $$;

-- Record that this database was restored. Runs from before, whose pods are gone, are not created again with their old tokens.
CREATE FUNCTION opendataflow.record_restore() RETURNS void
LANGUAGE sql AS $$
    UPDATE opendataflow.leader SET restored_at = clock_timestamp()
$$;

-- Forget the home. The next operator that leads becomes the home.
CREATE FUNCTION opendataflow.forget_home() RETURNS void
LANGUAGE sql AS $$
    UPDATE opendataflow.leader SET home = NULL, home_name = NULL
$$;

-- Make this database a copy: with another identity, so that no pod of the original is its own, and with all jobs suspended.
-- Return the number of jobs that were suspended. Locks level 2.
CREATE FUNCTION opendataflow.become_copy(p_actor text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_jobs bigint;
BEGIN
    PERFORM begin_event('suspend', p_actor, 'the database is a copy');
    PERFORM lock_jobs(ARRAY(SELECT j.id FROM job j));
    UPDATE job j SET suspended = true, modified = now() WHERE NOT j.suspended AND NOT j.deleted;
    GET DIAGNOSTICS v_jobs = ROW_COUNT;
    DELETE FROM orphan;
    UPDATE leader SET identity = left(md5(gen_random_uuid()::text), 12);
    PERFORM forget_home();
    RETURN v_jobs;
END $$;

-- Return those of the given owners of requests whose answer is recorded.
CREATE FUNCTION opendataflow.answered_requests(p_owners text[]) RETURNS SETOF text
LANGUAGE sql STABLE AS $$
    SELECT r.owner FROM opendataflow.request r WHERE r.owner = ANY (p_owners)
$$;
