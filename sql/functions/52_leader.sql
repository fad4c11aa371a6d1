-- Operators: one leads, the others wait. The leader's lease is its right to claim and to commit.

-- Takes or renews the leadership for a process; returns the epoch, or null while another one leads. A takeover raises the
-- epoch and hands all runs of the operator before over to the new one. It waits for claims of the old one that are under
-- way (they hold its lease's row), so that none is overlooked; the old one can't claim afterwards, since its lease is gone.
-- p_namespaces: the only ones that it works in, empty for all; null: as it was, for who leads and does no work.
CREATE FUNCTION opendataflow.acquire_leadership(p_lease uuid, p_host text, p_boot text, p_runs_home text, p_ttl interval,
                                                p_namespaces text[] DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_leader leader;
    v_until  timestamptz;
BEGIN
    SELECT * INTO v_leader FROM leader FOR UPDATE;
    IF v_leader.lease = p_lease AND renew_lease(p_lease, p_ttl) THEN
        RETURN v_leader.epoch;
    END IF;
    SELECT l.expires_at INTO v_until FROM lease l WHERE l.id = v_leader.lease;
    IF v_until > clock_timestamp() THEN
        RETURN NULL;
    END IF;
    PERFORM FROM lease l WHERE l.id = v_leader.lease FOR UPDATE;
    DELETE FROM lease l WHERE l.id = v_leader.lease;
    PERFORM open_lease(p_lease, 'operator', p_host, p_boot, p_runs_home, p_ttl);
    UPDATE leader SET lease = p_lease, epoch = epoch + 1, since = clock_timestamp(),
                      namespaces = coalesce(p_namespaces, namespaces);
    UPDATE run r SET lease = p_lease WHERE r.lease = v_leader.lease AND r.state = 'RUNNING';
    RETURN v_leader.epoch + 1;
END $$;

-- What is in namespaces that the operator does not work in: the jobs that their resources have declared, and the runs
-- whose pods may be alive there. A row for each such namespace that has any.
CREATE FUNCTION opendataflow.unmanaged_namespaces() RETURNS TABLE (namespace text, jobs text[], runs bigint[])
LANGUAGE sql STABLE AS $$
    SELECT u.namespace, coalesce(array_agg(u.job ORDER BY u.job) FILTER (WHERE u.run IS NULL), '{}'),
           coalesce(array_agg(u.run ORDER BY u.run) FILTER (WHERE u.run IS NOT NULL), '{}')
    FROM opendataflow.leader l
    CROSS JOIN LATERAL (
        SELECT split_part(j.owner, '/', 1) AS namespace, j.id AS job, NULL::bigint AS run
        FROM opendataflow.job j WHERE NOT j.deleted
        UNION ALL
        SELECT r.runs_home, r.job, r.id FROM opendataflow.run r WHERE r.lease = l.lease AND r.state = 'RUNNING') u
    WHERE cardinality(l.namespaces) > 0 AND u.namespace <> '' AND u.namespace <> ALL (l.namespaces)
    GROUP BY u.namespace ORDER BY u.namespace
$$;

-- Refuses what an operator asks for that does not lead any more: what it knows of the cluster may be old.
CREATE FUNCTION opendataflow.require_leader(p_lease uuid) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM leader l WHERE l.lease = p_lease FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another operator has taken over' USING ERRCODE = 'DF006';
    END IF;
END $$;

CREATE FUNCTION opendataflow.leader_identity() RETURNS text
LANGUAGE sql STABLE AS $$ SELECT l.identity FROM opendataflow.leader l $$;

-- Whether a request was done before: its answer, or null. `p_owner` as in the table.
CREATE FUNCTION opendataflow.recorded_answer(p_owner text, p_id text) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT r.answer FROM opendataflow.request r WHERE r.owner = p_owner AND r.id = p_id
$$;

-- Remembers that a request is done, in the transaction that does it. False: it was done meanwhile, and this one has to
-- be undone.
CREATE FUNCTION opendataflow.record_answer(p_owner text, p_id text, p_answer jsonb) RETURNS boolean
LANGUAGE sql AS $$
    WITH written AS (
        INSERT INTO opendataflow.request AS r (owner, id, answer) VALUES (p_owner, p_id, p_answer)
        ON CONFLICT (owner) DO UPDATE SET id = excluded.id, at = clock_timestamp(), answer = excluded.answer
        WHERE r.id <> excluded.id
        RETURNING 1
    ) SELECT EXISTS (SELECT FROM written)
$$;

-- Forgets the requests of actions that are there no more.
CREATE FUNCTION opendataflow.delete_answers(p_owners text[]) RETURNS void
LANGUAGE sql AS $$ DELETE FROM opendataflow.request r WHERE r.owner = ANY (p_owners) $$;
