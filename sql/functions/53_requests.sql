-- Requests by custom resources: access of namespaces, and deletion of old answers. 52_leader.sql records the answers.

-- Raise DF005 if a namespace may not send requests for a job or a data set.
-- A namespace may use its own resources, data sets shared with it, and everything declared by files and commands.
-- Raises DF002 if the job or the data set is unknown.
CREATE FUNCTION opendataflow.require_namespace_access(p_id text, p_of_chunks boolean, p_namespace text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_owner  text;
    v_shared text[] := '{}';
BEGIN
    IF p_of_chunks THEN
        PERFORM require_dataset(p_id);
        SELECT d.owner, d.share_with INTO v_owner, v_shared FROM dataset d WHERE d.id = p_id;
    ELSE
        PERFORM require_job(p_id);
        SELECT j.owner INTO v_owner FROM job j WHERE j.id = p_id;
    END IF;
    IF split_part(v_owner, '/', 1) <> p_namespace AND p_namespace <> ALL (v_shared) THEN
        RAISE EXCEPTION '%', CASE WHEN p_of_chunks
            THEN format('data set %s belongs to the DataSet %s and is not shared with namespace %s; add that to its spec.shareWith',
                        p_id, v_owner, p_namespace)
            ELSE format('job %s belongs to the DataFlowJob %s; ask for it in namespace %s',
                        p_id, v_owner, split_part(v_owner, '/', 1)) END
            USING ERRCODE = 'DF005';
    END IF;
END $$;

-- Delete answers that are older than p_before, whose owner starts with p_prefix and is not in p_owners.
-- p_owners: the owners that still exist. Returns the number of deleted answers.
CREATE FUNCTION opendataflow.delete_stale_answers(p_prefix text, p_owners text[], p_before timestamptz) RETURNS bigint
LANGUAGE sql AS $$
    WITH gone AS (
        DELETE FROM opendataflow.request r
        WHERE starts_with(r.owner, p_prefix) AND r.at < p_before AND r.owner <> ALL (p_owners)
        RETURNING 1
    ) SELECT count(*) FROM gone
$$;
