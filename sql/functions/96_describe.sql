-- Details of one object, for `dataflow describe` and `dataflow inspect`. These functions only read.

-- Return the newest events of one object, oldest first. Events of a job have an empty data id.
CREATE FUNCTION opendataflow.events_of(p_kind text, p_owner text, p_data_id text, p_limit integer) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_agg(jsonb_build_object('at', h.at, 'event', h.event, 'from', h.from_state, 'to', h.to_state,
                                                 'run', h.run, 'fence', h.fence, 'actor', h.actor, 'reason', h.reason) ORDER BY h.id), '[]')
    FROM (SELECT * FROM opendataflow.history_of(p_kind, p_owner, p_data_id) h ORDER BY h.id DESC LIMIT p_limit) h
$$;

-- Return the event that made a version of a chunk READY: {at, event, actor, reason, run}; null if it is unknown.
-- A release only ends a hold. It is returned only if no other event made that version READY.
CREATE FUNCTION opendataflow.publishing_event(p_dataset text, p_data_id text, p_fence bigint) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('at', h.at, 'event', h.event, 'actor', h.actor, 'reason', h.reason, 'run', h.run)
    FROM opendataflow.history_of('chunk', p_dataset, p_data_id) h
    WHERE h.fence = p_fence AND h.to_state = 'READY'
    ORDER BY h.event = 'release', h.id DESC LIMIT 1
$$;

-- Return one data set as a run saw it; null if it was not recorded.
CREATE FUNCTION opendataflow.dataset_as_declared(p_declaration bigint, p_dataset text) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT e FROM opendataflow.declaration d, jsonb_array_elements(d.datasets) AS e
    WHERE d.id = p_declaration AND e ->> 'id' = p_dataset LIMIT 1
$$;

-- Return the forced runs behind runs: the runs themselves, the runs that wrote what they read, and so on: {complete, forced}.
--   complete  false if only the nearest p_limit versions were searched
--   forced    [{run, job, data_id, at, state, dataset, fence, missing}], the nearest first. `dataset` and `fence`: the
--             version that was read; `dataset` is null for the runs themselves. `missing`: the inputs that were not READY;
--             null if they are unknown.
-- A version is a fencing token, and a run reads older versions only. So each step is one look-up by the token.
CREATE FUNCTION opendataflow.forced_runs_behind(p_runs bigint[], p_limit integer DEFAULT 1000) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        WITH RECURSIVE version AS (
            SELECT NULL::text AS dataset, r.fence FROM unnest(p_runs) AS p CROSS JOIN LATERAL run_of(p) r
            UNION
            SELECT f.dataset, f.fence
            FROM version v
            CROSS JOIN LATERAL (SELECT r.reads, r.read_fences FROM run r WHERE r.fence = v.fence OFFSET 0) r
            CROSS JOIN LATERAL unnest(r.reads, r.read_fences) AS f(dataset, fence)
        ), searched AS MATERIALIZED (SELECT row_number() OVER () AS place, v.* FROM (SELECT * FROM version LIMIT p_limit + 1) v)
        SELECT jsonb_build_object(
            'complete', count(*) <= p_limit,
            'forced', coalesce(jsonb_agg(jsonb_build_object(
                'run', r.id, 'job', r.job, 'data_id', r.data_id, 'at', r.finished_at, 'state', shown_state(r.state, r.failure_class),
                'dataset', s.dataset, 'fence', s.fence,
                'missing', CASE WHEN d.id IS NOT NULL THEN
                    (SELECT coalesce(jsonb_agg(e ->> 'id' ORDER BY e ->> 'id'), '[]') FROM jsonb_array_elements(d.datasets) AS e
                     WHERE e ->> 'itemtype' = 'IN' AND e ->> 'id' <> 'today' AND e ->> 'id' <> ALL (r.reads)) END)
                ORDER BY s.place) FILTER (WHERE r.id IS NOT NULL AND s.place <= p_limit), '[]'))
        FROM searched s
        LEFT JOIN LATERAL (SELECT * FROM run r WHERE r.fence = s.fence AND r.forced OFFSET 0) r ON true
        LEFT JOIN LATERAL (SELECT * FROM declaration d WHERE d.id = r.declaration OFFSET 0) d ON true);
END $$;

-- Return what has changed further up behind runs: {complete, changed}. Only versions that are the present ones are followed.
--   complete  false if only the nearest p_limit runs were searched
--   changed   [{run, job, data_id, dataset, fence, now, status}], the nearest first: an older run that read version `fence` of a data set,
--             whose chunk is in version `now` and in `status` at present. `dataset` is null if the task of that run is stale for another reason.
-- The inputs of the given runs themselves are not in it.
CREATE FUNCTION opendataflow.changes_behind(p_runs bigint[], p_limit integer DEFAULT 1000) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        WITH RECURSIVE maker AS (
            SELECT p AS run FROM unnest(p_runs) AS p
            UNION
            SELECT c.run
            FROM maker m
            CROSS JOIN LATERAL run_of(m.run) r
            CROSS JOIN LATERAL unnest(r.reads, r.read_fences) AS f(dataset, fence)
            CROSS JOIN LATERAL chunk_of(f.dataset, r.data_id) c
            WHERE c.fence = f.fence AND c.run IS NOT NULL
        ), searched AS MATERIALIZED (SELECT row_number() OVER () AS place, m.run FROM (SELECT * FROM maker LIMIT p_limit + 1) m)
        SELECT jsonb_build_object(
            'complete', count(DISTINCT s.run) <= p_limit,
            'changed', coalesce(jsonb_agg(jsonb_build_object(
                'run', r.id, 'job', r.job, 'data_id', r.data_id, 'dataset', x.dataset, 'fence', x.fence, 'now', x.now, 'status', x.status)
                ORDER BY s.place, x.dataset) FILTER (WHERE x.is_there AND s.place <= p_limit), '[]'))
        FROM searched s
        LEFT JOIN LATERAL run_of(s.run) r ON s.run <> ALL (p_runs)
        LEFT JOIN LATERAL (
            SELECT true AS is_there, f.dataset, f.fence, c.fence AS now, c.status
            FROM unnest(r.reads, r.read_fences) AS f(dataset, fence) CROSS JOIN LATERAL chunk_of(f.dataset, r.data_id) c
            WHERE c.fence <> f.fence OR c.status <> 'READY'
            UNION ALL
            SELECT true, NULL, NULL, NULL, NULL
            FROM task_of(r.job, r.data_id) t
            WHERE t.run = r.id AND t.stale AND NOT EXISTS (
                SELECT FROM unnest(r.reads, r.read_fences) AS f(dataset, fence) CROSS JOIN LATERAL chunk_of(f.dataset, r.data_id) c
                WHERE c.fence <> f.fence)) x ON true);
END $$;

-- Return the steps of a run, in order.
CREATE FUNCTION opendataflow.steps_of(p_run bigint) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_agg(to_jsonb(s) - 'run' ORDER BY s.ordinal), '[]') FROM opendataflow.step s WHERE s.run = p_run
$$;

-- Return the evidence for the five answers about the chunk of a task: the task, its last run, and its data sets with
--   used_fence  the version that the run read or wrote; null if neither
--   then, now   the declaration of the data set at the claim, and the present one
--   publication the event that made the present version READY
--   run_job     the job whose run made the present version
--   readers     the runs that read the chunk now
-- `behind`: the forced runs behind the present outputs, see forced_runs_behind(), and in `changes` what has changed, see changes_behind().
-- For a run that has ended, only `now`, `readers` and the present state of the chunk can still change.
CREATE FUNCTION opendataflow.inspection(p_job text, p_data_id text) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = opendataflow, pg_temp AS $$
    SELECT jsonb_build_object(
        'job', t.job, 'data_id', t.data_id, 'state', t.state, 'reason', t.reason, 'stale', t.stale,
        'missing_outputs', CASE WHEN t.incomplete THEN ARRAY(SELECT missing_outputs(t.job, t.data_id)) ELSE '{}' END,
        'declaring', declaring_of_job(t.job),
        'run', (to_jsonb(r) - ARRAY['log_tail', 'reads', 'read_fences', 'writes', 'lease', 'boot', 'answers', 'nonce'])
               || jsonb_build_object('state', shown_state(r.state, r.failure_class)),
        'seconds', round(extract(epoch FROM coalesce(r.finished_at, clock_timestamp()) - r.claimed_at)::numeric, 1),
        'behind', (SELECT forced_runs_behind(b.runs) || jsonb_build_object('changes', changes_behind(b.runs)) FROM (SELECT ARRAY(
            SELECT DISTINCT c.run FROM job_output o CROSS JOIN chunk_of(o.dataset, t.data_id) AS c WHERE o.job = t.job AND c.run IS NOT NULL
            UNION SELECT r.id WHERE r.id IS NOT NULL AND NOT EXISTS (SELECT FROM job_output o WHERE o.job = t.job)) AS runs) b),
        'datasets', (
            SELECT coalesce(jsonb_agg(jsonb_build_object(
                'dataset', l.dataset, 'itemtype', l.itemtype, 'status', coalesce(c.status, 'DECLARED'), 'held_status', c.held_status,
                'reason', c.reason, 'fence', c.fence, 'run', c.run,
                'run_job', (SELECT w.job FROM run_of(c.run) w), 'published_at', c.published_at,
                'rows', c.rows, 'bytes', c.bytes, 'checksum', c.checksum, 'bounds', c.bounds,
                'used_fence', u.fence,
                'publication', publishing_event(l.dataset, t.data_id, c.fence),
                'then', dataset_as_declared(r.declaration, l.dataset),
                'now', (SELECT to_jsonb(d) - ARRAY['encryptedpass', 'modified'] FROM dataset d WHERE d.id = l.dataset),
                'readers', coalesce((SELECT jsonb_agg(jsonb_build_object('job', x.job, 'run', x.id) ORDER BY x.id)
                                     FROM job_input i
                                     CROSS JOIN LATERAL (SELECT x.job, x.id FROM run x
                                                         WHERE x.job = i.job AND x.data_id = t.data_id AND x.state = 'RUNNING' OFFSET 0) x
                                     WHERE i.dataset = l.dataset), '[]')
                ) ORDER BY l.itemtype, l.dataset), '[]')
            FROM (SELECT i.dataset, 'IN' AS itemtype FROM job_input i WHERE i.job = t.job
                  UNION SELECT d, 'IN' FROM unnest(r.reads) AS d
                  UNION SELECT o.dataset, 'OUT' FROM job_output o WHERE o.job = t.job
                  UNION SELECT d, 'OUT' FROM unnest(r.writes) AS d) l
            LEFT JOIN chunk_of(l.dataset, t.data_id) AS c ON true
            LEFT JOIN LATERAL (SELECT r.fence WHERE l.itemtype = 'OUT' AND l.dataset = ANY (r.writes)
                               UNION ALL
                               SELECT f.fence FROM unnest(r.reads, r.read_fences) AS f(dataset, fence)
                               WHERE l.itemtype = 'IN' AND f.dataset = l.dataset) u ON true))
    FROM task t LEFT JOIN run r ON r.id = t.run
    WHERE t.job = p_job AND t.data_id = p_data_id
$$;

-- Return a job: its declaration, its limits, its last runs, and the changes of its limits.
CREATE FUNCTION opendataflow.describe_job(p_job text) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = opendataflow, pg_temp AS $$
    SELECT jsonb_build_object(
        'job', to_jsonb(j) - 'declaration', 'status', job_status(j.id),
        'env', (SELECT coalesce(jsonb_object_agg(e.name, e.value), '{}') FROM job_env e WHERE e.job = j.id),
        'datasets', (SELECT coalesce(jsonb_agg((to_jsonb(d) - 'encryptedpass') || jsonb_build_object('itemtype', l.itemtype)
                                               ORDER BY l.itemtype, l.dataset), '[]')
                     FROM job_dataset l JOIN dataset d ON d.id = l.dataset WHERE l.job = j.id),
        'runs', (SELECT coalesce(jsonb_agg(to_jsonb(r)), '[]') FROM list_runs(j.id, NULL, 5) r),
        'events', events_of('job', j.id, '', 20))
    FROM job j WHERE j.id = p_job
$$;

-- Return a data set: its location, its producer and consumers, its chunks by status, and the newest manual changes.
-- Only the last 20,000 events of all objects are searched.
CREATE FUNCTION opendataflow.describe_dataset(p_dataset text) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = opendataflow, pg_temp AS $$
    SELECT jsonb_build_object(
        'dataset', to_jsonb(d) - 'encryptedpass', 'declaring', declaring_behind(ARRAY[d.id], '{}'), 'has_password', d.encryptedpass IS NOT NULL,
        'producer', (SELECT o.job FROM job_output o WHERE o.dataset = d.id),
        'consumers', (SELECT coalesce(jsonb_agg(i.job ORDER BY i.job), '[]') FROM job_input i WHERE i.dataset = d.id),
        'counts', (SELECT coalesce(jsonb_object_agg(c.status, c.n), '{}')
                   FROM (SELECT c.status, count(*) AS n FROM chunk c WHERE c.dataset = d.id AND c.status <> 'RETIRED' GROUP BY c.status) c),
        'events', (SELECT coalesce(jsonb_agg(jsonb_build_object('at', h.at, 'event', h.event, 'data_id', h.data_id,
                            'from', h.from_state, 'to', h.to_state, 'actor', h.actor, 'reason', h.reason) ORDER BY h.id), '[]')
                   FROM (SELECT * FROM (SELECT * FROM history h ORDER BY h.id DESC LIMIT 20000) h
                         WHERE h.kind = 'chunk' AND h.owner = d.id AND h.event NOT IN ('claim', 'complete')
                         ORDER BY h.id DESC LIMIT 20) h))
    FROM dataset d WHERE d.id = p_dataset
$$;

-- Return a chunk: its status and version, the expectations of its last run, the forced runs behind it, its producer and its consumers.
CREATE FUNCTION opendataflow.describe_chunk(p_dataset text, p_data_id text) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = opendataflow, pg_temp AS $$
    SELECT jsonb_build_object(
        'chunk', to_jsonb(c), 'publication', publishing_event(c.dataset, c.data_id, c.fence),
        'expectations', (SELECT r.metrics -> 'expectations' FROM run_of(c.run) AS r),
        'behind', forced_runs_behind(ARRAY[c.run]),
        'changes', CASE WHEN c.status = 'READY' AND c.run IS NOT NULL THEN changes_behind(ARRAY[c.run]) END,
        'producer', (SELECT jsonb_build_object('job', t.job, 'state', t.state, 'reason', t.reason, 'run', t.run, 'stale', t.stale)
                     FROM job_output o CROSS JOIN task_of(o.job, c.data_id) AS t
                     WHERE o.dataset = c.dataset),
        'consumers', (SELECT coalesce(jsonb_agg(jsonb_build_object('job', t.job, 'state', t.state, 'reason', t.reason,
                                                                   'run', t.run, 'stale', t.stale) ORDER BY t.job), '[]')
                      FROM job_input i CROSS JOIN task_of(i.job, c.data_id) AS t
                      WHERE i.dataset = c.dataset),
        'events', events_of('chunk', c.dataset, c.data_id, 20))
    FROM chunk c WHERE c.dataset = p_dataset AND c.data_id = p_data_id
$$;

-- Return a run: the versions that it read and wrote, how it ended, and the changes that it made.
CREATE FUNCTION opendataflow.describe_run(p_run bigint) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = opendataflow, pg_temp AS $$
    SELECT jsonb_build_object(
        'run', (to_jsonb(r) - 'log_tail') || jsonb_build_object('state', shown_state(r.state, r.failure_class)),
        'seconds', round(extract(epoch FROM coalesce(r.finished_at, clock_timestamp()) - r.claimed_at)::numeric, 1),
        'task', (SELECT t.state FROM task t WHERE t.job = r.job AND t.data_id = r.data_id),
        'last', (SELECT t.run = r.id FROM task t WHERE t.job = r.job AND t.data_id = r.data_id),
        'datasets', (SELECT d.datasets FROM declaration d WHERE d.id = r.declaration),
        'behind', forced_runs_behind(ARRAY[r.id]),
        'steps', steps_of(r.id),
        'events', (SELECT coalesce(jsonb_agg(e ORDER BY e ->> 'at'), '[]')
                   FROM jsonb_array_elements(events_of('task', r.job, r.data_id, 1000)) AS e WHERE (e ->> 'run')::bigint = r.id))
    FROM run r WHERE r.id = p_run
$$;

-- Return ids that start with p_start, for shell completion.
-- p_kind: job, dataset, or data_id for the data ids of the job or data set p_owner.
CREATE FUNCTION opendataflow.ids_starting_with(p_kind text, p_owner text, p_start text, p_limit integer) RETURNS SETOF text
LANGUAGE sql STABLE AS $$
    (SELECT j.id FROM opendataflow.job j WHERE p_kind = 'job' AND NOT j.deleted AND starts_with(j.id, p_start) ORDER BY 1 LIMIT p_limit)
    UNION
    (SELECT d.id FROM opendataflow.dataset d WHERE p_kind = 'dataset' AND starts_with(d.id, p_start) ORDER BY 1 LIMIT p_limit)
    UNION
    (SELECT t.data_id FROM opendataflow.task t
     WHERE p_kind = 'data_id' AND t.job = p_owner AND starts_with(t.data_id, p_start) LIMIT p_limit)
    UNION
    (SELECT c.data_id FROM opendataflow.chunk c
     WHERE p_kind = 'data_id' AND c.dataset = p_owner AND starts_with(c.data_id, p_start) LIMIT p_limit)
    ORDER BY 1 LIMIT p_limit
$$;
