-- Leadership of operators: one operator leads, the others wait. The leader's lease authorizes claims and commits.

-- Acquire or renew the leadership. Return the epoch, or null if another operator leads.
-- A takeover increments the epoch and transfers all running runs of the previous leader.
-- A renewal waits for no transaction of this leader: they lock the leader's row FOR KEY SHARE, see require_leader().
-- A takeover waits for those of the previous leader, and for its claims, which hold its lease's row, so that none is missed.
-- The previous leader can't claim afterwards, because its lease is deleted.
-- p_namespaces: the only namespaces that the operator manages; empty for all; null keeps the present value.
-- p_epoch: the epoch in which this operator leads. p_run, p_fence: the newest run that it knows. Null: none yet.
-- Raises DF009 if these are missing here: the database has gone back in time.
-- p_home, p_home_name: the uid and the namespace/name of the operator's service account; null if it has none.
-- Raises DF001 if the database belongs to another one. The first one that leads becomes its home.
-- Locks the leader's row, then the previous lease (level 1), then runs.
CREATE FUNCTION opendataflow.acquire_leadership(p_lease uuid, p_host text, p_boot text, p_runs_home text, p_ttl interval,
                                                p_namespaces text[] DEFAULT NULL, p_epoch bigint DEFAULT NULL,
                                                p_run bigint DEFAULT NULL, p_fence bigint DEFAULT NULL,
                                                p_home text DEFAULT NULL, p_home_name text DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_leader     leader;
    v_expires_at timestamptz;
BEGIN
    SELECT * INTO v_leader FROM leader FOR NO KEY UPDATE;
    PERFORM require_home(v_leader, p_home);
    PERFORM require_history(v_leader, p_lease, p_epoch, p_run, p_fence);
    IF v_leader.lease = p_lease AND renew_lease(p_lease, p_ttl) THEN
        RETURN v_leader.epoch;
    END IF;
    SELECT l.expires_at INTO v_expires_at FROM lease l WHERE l.id = v_leader.lease;
    IF v_expires_at > clock_timestamp() THEN
        RETURN NULL;
    END IF;
    PERFORM FROM leader FOR UPDATE;
    PERFORM FROM lease l WHERE l.id = v_leader.lease FOR UPDATE;
    DELETE FROM lease l WHERE l.id = v_leader.lease;
    PERFORM open_lease(p_lease, 'operator', p_host, p_boot, p_runs_home, p_ttl);
    UPDATE leader SET lease = p_lease, epoch = epoch + 1, since = clock_timestamp(), host = p_host, ended_at = NULL, reason = NULL,
                      namespaces = coalesce(p_namespaces, namespaces), home = coalesce(home, p_home),
                      home_name = coalesce(home_name, p_home_name);
    UPDATE run r SET lease = p_lease WHERE r.lease = v_leader.lease AND r.state = 'RUNNING';
    RETURN v_leader.epoch + 1;
END $$;

-- Raise DF001 if the database belongs to the operators of another service account.
CREATE FUNCTION opendataflow.require_home(p_leader opendataflow.leader, p_home text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF p_leader.home <> p_home THEN
        RAISE EXCEPTION 'this database belongs to the operators of the service account % (uid %), and this operator has uid %: '
            'if they are gone, run `dataflow db restored --move`; if this is a copy of their database, `dataflow db restored --copy`',
            p_leader.home_name, p_leader.home, p_home USING ERRCODE = 'DF001';
    END IF;
END $$;

-- Raise DF009 if this database lacks the epoch in which an operator leads, or the newest run that the operator knows.
-- The leader's row is that of another operator of the same epoch if two histories have one origin.
CREATE FUNCTION opendataflow.require_history(p_leader opendataflow.leader, p_lease uuid, p_epoch bigint, p_run bigint, p_fence bigint)
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF p_leader.epoch < p_epoch OR (p_leader.epoch = p_epoch AND p_leader.lease IS DISTINCT FROM p_lease) THEN
        PERFORM report_lost_history(format('that this operator leads since epoch %s', p_epoch));
    END IF;
    PERFORM require_run(p_run, p_fence);
END $$;

-- Give up the leadership, if this lease has it: another operator leads at once. Its runs continue.
-- p_reason: the error that ends the operator; null: it was stopped. Locks the leader's row, then the lease.
CREATE FUNCTION opendataflow.resign(p_lease uuid, p_reason text) RETURNS void
LANGUAGE sql AS $$
    UPDATE opendataflow.leader SET ended_at = clock_timestamp(), reason = p_reason WHERE lease = p_lease;
    SELECT opendataflow.close_lease(p_lease);
$$;

-- Return the operator that leads, or led last; null if none has ever led. `leads`: its lease is valid.
-- `silent`: for how many seconds its lease has been over. `reason`: why it gave up, at `ended_at`.
CREATE FUNCTION opendataflow.leading_operator() RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('host', d.host, 'leads', coalesce(l.expires_at > clock_timestamp(), false), 'since', d.since,
                              'silent', extract(epoch FROM clock_timestamp() - l.expires_at),
                              'ended', extract(epoch FROM clock_timestamp() - d.ended_at), 'reason', d.reason)
    FROM opendataflow.leader d LEFT JOIN opendataflow.lease l ON l.id = d.lease WHERE d.lease IS NOT NULL
$$;

-- Return the jobs and running runs in namespaces that the operator does not manage, one row for each namespace.
CREATE FUNCTION opendataflow.unmanaged_namespaces() RETURNS TABLE (namespace text, jobs text[], runs bigint[])
LANGUAGE sql STABLE AS $$
    SELECT u.namespace, coalesce(array_agg(u.job ORDER BY u.job) FILTER (WHERE u.run IS NULL), '{}'),
           coalesce(array_agg(u.run ORDER BY u.run) FILTER (WHERE u.run IS NOT NULL), '{}')
    FROM opendataflow.leader l
    CROSS JOIN LATERAL (
        SELECT opendataflow.namespace_of(j.id) AS namespace, j.id AS job, NULL::bigint AS run
        FROM opendataflow.job j WHERE NOT j.deleted
        UNION ALL
        SELECT r.runs_home, r.job, r.id FROM opendataflow.run r WHERE r.lease = l.lease AND r.state = 'RUNNING') u
    WHERE cardinality(l.namespaces) > 0 AND u.namespace <> '' AND u.namespace <> ALL (l.namespaces)
    GROUP BY u.namespace ORDER BY u.namespace
$$;

-- Raise DF006 if the lease does not lead any more, because that operator's view of the cluster may be outdated.
CREATE FUNCTION opendataflow.require_leader(p_lease uuid) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM leader l WHERE l.lease = p_lease FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another operator has taken over' USING ERRCODE = 'DF006';
    END IF;
END $$;

-- Return those of the given runs that exist, with what identifies their pods. `pod_uid`: null if the outcome has none.
CREATE FUNCTION opendataflow.pods_of_runs(p_ids bigint[])
RETURNS TABLE (run bigint, job text, namespace text, fence bigint, nonce uuid, pod_uid text, ended boolean)
LANGUAGE sql STABLE AS $$
    SELECT r.id, r.job, r.runs_home, r.fence, r.nonce, r.pod_uid, r.state <> 'RUNNING'
    FROM unnest(p_ids) AS i CROSS JOIN LATERAL (SELECT * FROM opendataflow.run r WHERE r.id = i OFFSET 0) AS r
$$;

-- Return the identity of this database in the cluster.
CREATE FUNCTION opendataflow.leader_identity() RETURNS text
LANGUAGE sql STABLE AS $$ SELECT l.identity FROM opendataflow.leader l $$;

-- Return the answer to a request that was executed before, or null. p_owner: see the table `request`.
CREATE FUNCTION opendataflow.recorded_answer(p_owner text, p_id text) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT r.answer FROM opendataflow.request r WHERE r.owner = p_owner AND r.id = p_id
$$;

-- Record an executed request in the same transaction. Return false if the request was executed meanwhile.
-- The caller must then roll back.
CREATE FUNCTION opendataflow.record_answer(p_owner text, p_id text, p_answer jsonb) RETURNS boolean
LANGUAGE sql AS $$
    WITH written AS (
        INSERT INTO opendataflow.request AS r (owner, id, answer) VALUES (p_owner, p_id, p_answer)
        ON CONFLICT (owner) DO UPDATE SET id = excluded.id, at = clock_timestamp(), answer = excluded.answer
        WHERE r.id <> excluded.id
        RETURNING 1
    ) SELECT EXISTS (SELECT FROM written)
$$;

-- Delete the answers to requests of deleted actions.
CREATE FUNCTION opendataflow.delete_answers(p_owners text[]) RETURNS void
LANGUAGE sql AS $$ DELETE FROM opendataflow.request r WHERE r.owner = ANY (p_owners) $$;
