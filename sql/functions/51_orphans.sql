-- Orphans: pods and SparkApplications of runs that this database does not know, because it has gone back in time.
-- The leading operator lists them before its first claim, and deletes them. Until an orphan has ended, it may write.

-- Record all orphans, and forget those that are not in the cluster any more. p_orphans: [{uid, run, fence, job, data_id, namespace, name}].
-- p_complete: whether all namespaces were listed; if not, the others stay.
-- Raise the sequences above the runs and fencing tokens of orphans. Whoever may create pods can write any label, so
-- numbers are ignored that the lost time can't have reached: 10 million runs, or a clock that was a day ahead.
-- Raises DF006 if the lease does not lead.
CREATE FUNCTION opendataflow.record_orphans(p_lease uuid, p_orphans jsonb, p_complete boolean) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM require_leader(p_lease);
    UPDATE leader SET restored_at = clock_timestamp() WHERE p_orphans <> '[]' AND lease = p_lease;
    DELETE FROM orphan o WHERE p_complete AND NOT EXISTS (SELECT FROM jsonb_to_recordset(p_orphans) AS n(uid text) WHERE n.uid = o.uid);
    INSERT INTO orphan (uid, run, job, data_id, namespace, name)
    SELECT n.uid, n.run, n.job, n.data_id, n.namespace, n.name
    FROM jsonb_to_recordset(p_orphans) AS n(uid text, run bigint, job text, data_id text, namespace text, name text)
    ON CONFLICT (uid) DO NOTHING;
    PERFORM setval('run_id_seq', m.run)
    FROM (SELECT max(n.run) AS run FROM jsonb_to_recordset(p_orphans) AS n(run bigint), run_id_seq s
          WHERE n.run BETWEEN s.last_value AND s.last_value + 10000000) m
    WHERE m.run IS NOT NULL;
    PERFORM next_fence(m.fence)
    FROM (SELECT max(n.fence) AS fence FROM jsonb_to_recordset(p_orphans) AS n(fence bigint)
          WHERE n.fence <= (extract(epoch FROM clock_timestamp() + interval '1 day') * 1000000)::bigint) m
    WHERE m.fence IS NOT NULL;
END $$;

-- Forget orphans that have ended. Raises DF006 if the lease does not lead.
CREATE FUNCTION opendataflow.forget_orphans(p_lease uuid, p_uids text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM require_leader(p_lease);
    DELETE FROM orphan o WHERE o.uid = ANY (p_uids);
END $$;

-- Return the orphans that may write a chunk which a task of this job reads or writes.
CREATE FUNCTION opendataflow.orphans_of(p_job text) RETURNS SETOF opendataflow.orphan
LANGUAGE sql STABLE AS $$
    SELECT o.* FROM opendataflow.orphan o
    WHERE o.job = p_job
       OR EXISTS (SELECT FROM opendataflow.job_output w JOIN opendataflow.datasets_of(p_job) AS d(dataset) ON d.dataset = w.dataset WHERE w.job = o.job)
$$;
