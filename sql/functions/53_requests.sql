-- Requests by custom resources: deletion of old answers. 52_leader.sql records the answers, 54_sharing.sql decides about access.

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
