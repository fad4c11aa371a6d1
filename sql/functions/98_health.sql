-- Return the data for `dataflow doctor`: live engines, and everything that waits for a person, at most 20 of each kind.
-- `now`: the server's clock.
CREATE FUNCTION opendataflow.health() RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'engines', (SELECT coalesce(jsonb_agg(jsonb_build_object('host', l.host, 'kind', l.kind, 'runs', (
                            SELECT count(*) FROM opendataflow.run r WHERE r.lease = l.id AND r.state = 'RUNNING')) ORDER BY l.host), '[]')
                    FROM opendataflow.lease l WHERE l.expires_at > clock_timestamp()),
        'orphans', (SELECT coalesce(jsonb_agg(to_jsonb(o)), '[]') FROM (
                        SELECT r.id AS run, r.job, r.data_id, r.host, r.runs_home FROM opendataflow.run r
                        WHERE r.state = 'RUNNING' AND r.lease IS DISTINCT FROM (SELECT d.lease FROM opendataflow.leader d)
                          AND NOT EXISTS (SELECT FROM opendataflow.lease l
                                                                  WHERE l.id = r.lease AND l.expires_at > clock_timestamp())
                        ORDER BY r.id LIMIT 20) o),
        'orphaned_pods', (SELECT coalesce(jsonb_agg(to_jsonb(o) ORDER BY o.since, o.uid), '[]') FROM (SELECT * FROM opendataflow.orphan LIMIT 20) o),
        'operator', opendataflow.leading_operator(),
        'unmanaged_namespaces', (SELECT coalesce(jsonb_agg(to_jsonb(o)), '[]') FROM opendataflow.unmanaged_namespaces() o),
        'held', (SELECT coalesce(jsonb_agg(to_jsonb(o)), '[]') FROM (
                     SELECT c.dataset, c.data_id, c.reason, h.since FROM opendataflow.chunk c
                     CROSS JOIN LATERAL (SELECT max(h.at) AS since FROM opendataflow.history h
                                         WHERE h.kind = 'chunk' AND h.owner = c.dataset AND h.data_id = c.data_id) h
                     WHERE c.status = 'HOLD' AND h.since < clock_timestamp() - interval '7 days' LIMIT 20) o),
        'pending', (SELECT coalesce(jsonb_agg(to_jsonb(o)), '[]') FROM (
                        SELECT c.dataset, c.data_id FROM opendataflow.chunk c WHERE c.status = 'PENDING' LIMIT 20) o),
        'suspended', (SELECT coalesce(jsonb_agg(j.id ORDER BY j.id), '[]') FROM opendataflow.job j WHERE j.suspended AND NOT j.deleted),
        'now', clock_timestamp(),
        'queued', (SELECT coalesce(sum(c.tasks), 0) FROM opendataflow.task_count c WHERE c.state = 'QUEUED'))
$$;
