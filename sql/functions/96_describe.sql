-- One thing with all that is known of it: what `dataflow describe` and `dataflow inspect` show. Nothing here changes anything.

-- The newest events of one thing, in the order in which they happened. Of a job the data id is empty.
CREATE FUNCTION opendataflow.events_of(p_kind text, p_owner text, p_data_id text, p_limit integer) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_agg(jsonb_build_object('at', h.at, 'event', h.event, 'from', h.from_state, 'to', h.to_state,
                                                 'run', h.run, 'fence', h.fence, 'actor', h.actor, 'reason', h.reason) ORDER BY h.id), '[]')
    FROM (SELECT * FROM opendataflow.history_of(p_kind, p_owner, p_data_id) h ORDER BY h.id DESC LIMIT p_limit) h
$$;

-- What made a version of a chunk READY: {at, event, actor, reason, run}; null where that is not known any more.
CREATE FUNCTION opendataflow.publishing_event(p_dataset text, p_data_id text, p_fence bigint) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('at', h.at, 'event', h.event, 'actor', h.actor, 'reason', h.reason, 'run', h.run)
    FROM opendataflow.history_of('chunk', p_dataset, p_data_id) h
    WHERE h.fence = p_fence AND h.to_state = 'READY'
    ORDER BY h.id DESC LIMIT 1
$$;

-- A data set out of what a run has seen of them; null where that was not kept.
CREATE FUNCTION opendataflow.dataset_as_declared(p_declaration bigint, p_dataset text) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT e FROM opendataflow.declaration d, jsonb_array_elements(d.datasets) AS e
    WHERE d.id = p_declaration AND e ->> 'id' = p_dataset LIMIT 1
$$;

-- What became of the steps of a run, in their order.
CREATE FUNCTION opendataflow.steps_of(p_run bigint) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_agg(to_jsonb(s) - 'run' ORDER BY s.ordinal), '[]') FROM opendataflow.step s WHERE s.run = p_run
$$;

-- The evidence for the five questions about the chunk of a task: the task, its last run, and each of its data sets with
--   used_fence  the version that the run has read or written, null where it did neither
--   then, now   what was declared of the data set when the run was claimed, and what is now
--   said        what made that version READY, or where there was no run the present one
--   readers     the runs that read the chunk now
-- Of a run that has ended, all of this but `now`, `readers` and the chunk's present state is what it was then.
CREATE FUNCTION opendataflow.inspection(p_job text, p_data_id text) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = opendataflow, pg_temp AS $$
    SELECT jsonb_build_object(
        'job', w.job, 'data_id', w.data_id, 'state', w.state, 'reason', w.reason, 'stale', w.stale,
        'run', (to_jsonb(r) - ARRAY['log_tail', 'reads', 'read_fences', 'writes', 'lease', 'boot', 'answers'])
               || jsonb_build_object('state', shown_state(r.state, r.failure_class)),
        'seconds', round(extract(epoch FROM coalesce(r.finished_at, clock_timestamp()) - r.claimed_at)::numeric, 1),
        'datasets', (
            SELECT coalesce(jsonb_agg(jsonb_build_object(
                'dataset', l.dataset, 'itemtype', l.itemtype, 'status', coalesce(c.status, 'DECLARED'), 'held_status', c.held_status,
                'reason', c.reason, 'fence', c.fence, 'run', c.run, 'published_at', c.published_at,
                'rows', c.rows, 'bytes', c.bytes, 'checksum', c.checksum, 'bounds', c.bounds,
                'used_fence', u.fence,
                'said', publishing_event(l.dataset, w.data_id, coalesce(u.fence, c.fence)),
                'then', dataset_as_declared(r.declaration, l.dataset),
                'now', (SELECT to_jsonb(d) - ARRAY['encryptedpass', 'modified'] FROM dataset d WHERE d.id = l.dataset),
                'readers', coalesce((SELECT jsonb_agg(jsonb_build_object('job', x.job, 'run', x.id) ORDER BY x.id)
                                     FROM job_input i
                                     CROSS JOIN LATERAL (SELECT x.job, x.id FROM run x
                                                         WHERE x.job = i.job AND x.data_id = w.data_id AND x.state = 'RUNNING' OFFSET 0) x
                                     WHERE i.dataset = l.dataset), '[]')
                ) ORDER BY l.itemtype, l.dataset), '[]')
            FROM (SELECT i.dataset, 'IN' AS itemtype FROM job_input i WHERE i.job = w.job
                  UNION SELECT d, 'IN' FROM unnest(r.reads) AS d
                  UNION SELECT o.dataset, 'OUT' FROM job_output o WHERE o.job = w.job
                  UNION SELECT d, 'OUT' FROM unnest(r.writes) AS d) l
            LEFT JOIN chunk_of(l.dataset, w.data_id) AS c ON true
            LEFT JOIN LATERAL (SELECT r.fence WHERE l.itemtype = 'OUT' AND l.dataset = ANY (r.writes)
                               UNION ALL
                               SELECT f.fence FROM unnest(r.reads, r.read_fences) AS f(dataset, fence)
                               WHERE l.itemtype = 'IN' AND f.dataset = l.dataset) u ON true))
    FROM task w LEFT JOIN run r ON r.id = w.run
    WHERE w.job = p_job AND w.data_id = p_data_id
$$;

-- A job: what was declared, its limits, its last runs, and who changed what.
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

-- A data set: where it is, who makes and reads it, its chunks by status, and the newest of what people did to them, among
-- the last 20,000 events of everything.
CREATE FUNCTION opendataflow.describe_dataset(p_dataset text) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = opendataflow, pg_temp AS $$
    SELECT jsonb_build_object(
        'dataset', to_jsonb(d) - 'encryptedpass', 'has_password', d.encryptedpass IS NOT NULL,
        'producer', (SELECT o.job FROM job_output o WHERE o.dataset = d.id),
        'consumers', (SELECT coalesce(jsonb_agg(i.job ORDER BY i.job), '[]') FROM job_input i WHERE i.dataset = d.id),
        'counts', (SELECT coalesce(jsonb_object_agg(c.status, c.n), '{}')
                   FROM (SELECT c.status, count(*) AS n FROM chunk c WHERE c.dataset = d.id GROUP BY c.status) c),
        'events', (SELECT coalesce(jsonb_agg(jsonb_build_object('at', h.at, 'event', h.event, 'data_id', h.data_id,
                            'from', h.from_state, 'to', h.to_state, 'actor', h.actor, 'reason', h.reason) ORDER BY h.id), '[]')
                   FROM (SELECT * FROM (SELECT * FROM history h ORDER BY h.id DESC LIMIT 20000) h
                         WHERE h.kind = 'chunk' AND h.owner = d.id AND h.event NOT IN ('claim', 'complete')
                         ORDER BY h.id DESC LIMIT 20) h))
    FROM dataset d WHERE d.id = p_dataset
$$;

-- A chunk: its status and version, what its last run has checked, the task that makes it, the tasks that read it.
CREATE FUNCTION opendataflow.describe_chunk(p_dataset text, p_data_id text) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = opendataflow, pg_temp AS $$
    SELECT jsonb_build_object(
        'chunk', to_jsonb(c), 'said', publishing_event(c.dataset, c.data_id, c.fence),
        'expectations', (SELECT r.metrics -> 'expectations' FROM run_of(c.run) AS r),
        'producer', (SELECT jsonb_build_object('job', w.job, 'state', w.state, 'reason', w.reason, 'run', w.run)
                     FROM job_output o CROSS JOIN task_of(o.job, c.data_id) AS w
                     WHERE o.dataset = c.dataset),
        'consumers', (SELECT coalesce(jsonb_agg(jsonb_build_object('job', w.job, 'state', w.state, 'reason', w.reason,
                                                                   'run', w.run, 'stale', w.stale) ORDER BY w.job), '[]')
                      FROM job_input i CROSS JOIN task_of(i.job, c.data_id) AS w
                      WHERE i.dataset = c.dataset),
        'events', events_of('chunk', c.dataset, c.data_id, 20))
    FROM chunk c WHERE c.dataset = p_dataset AND c.data_id = p_data_id
$$;

-- A run: what it read and wrote in which version, how it ended, and what it changed.
CREATE FUNCTION opendataflow.describe_run(p_run bigint) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = opendataflow, pg_temp AS $$
    SELECT jsonb_build_object(
        'run', (to_jsonb(r) - 'log_tail') || jsonb_build_object('state', shown_state(r.state, r.failure_class)),
        'seconds', round(extract(epoch FROM coalesce(r.finished_at, clock_timestamp()) - r.claimed_at)::numeric, 1),
        'task', (SELECT w.state FROM task w WHERE w.job = r.job AND w.data_id = r.data_id),
        'last', (SELECT w.run = r.id FROM task w WHERE w.job = r.job AND w.data_id = r.data_id),
        'datasets', (SELECT d.datasets FROM declaration d WHERE d.id = r.declaration),
        'steps', steps_of(r.id),
        'events', (SELECT coalesce(jsonb_agg(e ORDER BY e ->> 'at'), '[]')
                   FROM jsonb_array_elements(events_of('task', r.job, r.data_id, 1000)) AS e WHERE (e ->> 'run')::bigint = r.id))
    FROM run r WHERE r.id = p_run
$$;

-- Ids that begin like p_start, for completion in a shell: jobs, data sets (kind job, dataset), or the data ids of one.
CREATE FUNCTION opendataflow.ids_starting_with(p_kind text, p_owner text, p_start text, p_limit integer) RETURNS SETOF text
LANGUAGE sql STABLE AS $$
    (SELECT j.id FROM opendataflow.job j WHERE p_kind = 'job' AND NOT j.deleted AND starts_with(j.id, p_start) ORDER BY 1 LIMIT p_limit)
    UNION
    (SELECT d.id FROM opendataflow.dataset d WHERE p_kind = 'dataset' AND starts_with(d.id, p_start) ORDER BY 1 LIMIT p_limit)
    UNION
    (SELECT w.data_id FROM opendataflow.task w
     WHERE p_kind = 'data_id' AND w.job = p_owner AND starts_with(w.data_id, p_start) LIMIT p_limit)
    UNION
    (SELECT c.data_id FROM opendataflow.chunk c
     WHERE p_kind = 'data_id' AND c.dataset = p_owner AND starts_with(c.data_id, p_start) LIMIT p_limit)
    ORDER BY 1 LIMIT p_limit
$$;
