-- The plan of an apply: what it would change, computed before anything is written.
-- p_datasets, p_ids, p_bounds: the chunks of declared chunk sources that differ from what is there. p_removed, p_removed_ids: the chunks
-- that a declared chunk source has no more. stated_chunks() returns both. p_jobs: as for apply().
-- Functions in SQL compare whole lists, so they set the planner's usual joins (99_settings.sql forbids them elsewhere).

-- Return the links of all jobs after the apply, with their ranges. `is_source`: the ids of the data set create tasks.
-- `spreads`: the ids of the job become chunks of the data set.
-- ROWS: fewer than a step downstream is estimated at, so that recursive queries hash the links once and not in each step.
CREATE FUNCTION opendataflow.links_after(p_jobs jsonb)
RETURNS TABLE (job text, dataset text, is_output boolean, is_source boolean, spreads boolean, chunk_from text, chunk_to text)
LANGUAGE sql STABLE ROWS 50 SET search_path = opendataflow, pg_temp AS $$
    WITH link AS (
        SELECT j.value ->> 'id' AS job, d AS dataset, false AS is_output, j.value ->> 'chunk_from' AS chunk_from, j.value ->> 'chunk_to' AS chunk_to
        FROM jsonb_array_elements(p_jobs) AS j, jsonb_array_elements_text(j.value -> 'inputs') AS d
        UNION ALL
        SELECT j.value ->> 'id', d, true, j.value ->> 'chunk_from', j.value ->> 'chunk_to'
        FROM jsonb_array_elements(p_jobs) AS j, jsonb_array_elements_text(j.value -> 'outputs') AS d
        UNION ALL
        SELECT l.job, l.dataset, l.itemtype = 'OUT', j.chunk_from, j.chunk_to FROM job_dataset l JOIN job j ON j.id = l.job
        WHERE l.job NOT IN (SELECT j.value ->> 'id' FROM jsonb_array_elements(p_jobs) AS j)
    )
    SELECT l.job, l.dataset, l.is_output,
           NOT l.is_output OR NOT EXISTS (SELECT FROM link i WHERE i.job = l.job AND NOT i.is_output), spreads_to(l.job, l.dataset),
           l.chunk_from, l.chunk_to
    FROM link l
$$;

-- Return each job of the request with its inputs, its changes (`added` and `removed` inputs and outputs), and its range.
-- `known`: whether the job exists and is not deleted. `ranged`: whether the range has changed.
CREATE FUNCTION opendataflow.job_changes(p_jobs jsonb)
RETURNS TABLE (job text, known boolean, inputs text[], added_inputs text[], removed_inputs text[], added_outputs text[], removed_outputs text[],
               chunk_from text, chunk_to text, ranged boolean)
LANGUAGE sql STABLE SET search_path = opendataflow, pg_temp AS $$
    SELECT n.id, j.id IS NOT NULL AND NOT j.deleted,
           ARRAY(SELECT jsonb_array_elements_text(n.inputs)),
           ARRAY(SELECT jsonb_array_elements_text(n.inputs) EXCEPT SELECT i.dataset FROM job_input i WHERE i.job = n.id ORDER BY 1),
           ARRAY(SELECT i.dataset FROM job_input i WHERE i.job = n.id EXCEPT SELECT jsonb_array_elements_text(n.inputs) ORDER BY 1),
           ARRAY(SELECT jsonb_array_elements_text(n.outputs) EXCEPT SELECT o.dataset FROM job_output o WHERE o.job = n.id ORDER BY 1),
           ARRAY(SELECT o.dataset FROM job_output o WHERE o.job = n.id EXCEPT SELECT jsonb_array_elements_text(n.outputs) ORDER BY 1),
           n.chunk_from, n.chunk_to, j.id IS NOT NULL AND (j.chunk_from, j.chunk_to) IS DISTINCT FROM (n.chunk_from, n.chunk_to)
    FROM jsonb_to_recordset(p_jobs) AS n(id text, inputs jsonb, outputs jsonb, chunk_from text, chunk_to text)
    LEFT JOIN job j ON j.id = n.id
$$;

-- Return the tasks of changed jobs whose id is in no input any more (or in no output, for jobs without inputs).
-- Chunks that the apply creates downstream are not considered. A task whose id was withdrawn before is not returned again.
CREATE FUNCTION opendataflow.orphaned_tasks(p_datasets text[], p_ids text[], p_jobs jsonb)
RETURNS TABLE (job text, data_id text)
LANGUAGE sql STABLE SET search_path = opendataflow, pg_temp SET enable_hashjoin = on AS $$
    WITH link AS MATERIALIZED (SELECT * FROM links_after(p_jobs) l WHERE l.is_source),
    declared AS MATERIALIZED (SELECT p.dataset, p.data_id FROM unnest(p_datasets, p_ids) AS p(dataset, data_id))
    SELECT t.job, t.data_id
    FROM task t
    WHERE t.job = ANY (ARRAY(  -- an array, so that tasks of other jobs are not read
        SELECT n.job FROM job_changes(p_jobs) n
        WHERE (n.added_inputs, n.removed_inputs, n.added_outputs, n.removed_outputs)
              <> (ARRAY[]::text[], ARRAY[]::text[], ARRAY[]::text[], ARRAY[]::text[])))
      AND t.state <> 'RETIRED'
      AND NOT EXISTS (SELECT FROM link s CROSS JOIN chunk_of(s.dataset, t.data_id) c
                      WHERE s.job = t.job AND c.retired_from IS NULL)
      AND NOT EXISTS (SELECT FROM link s JOIN declared d ON d.dataset = s.dataset WHERE s.job = t.job AND d.data_id = t.data_id)
      AND has_source(t.job, t.data_id)
$$;

-- Return the chunks that are there after the apply, and those that are `withdrawn`, at all ids that lose something.
-- A chunk is there if
--   its chunk source has the id, or a person has loaded, declared or published it, or
--   a job with this data set has the id among its sources (a new chunk only if the id is in the job's range), or
--   nothing was taken away: it is no candidate.
-- Candidates are the chunks removed from a source, the chunks of orphaned tasks, and everything downstream of them.
CREATE FUNCTION opendataflow.chunks_after(p_datasets text[], p_ids text[], p_removed text[], p_removed_ids text[], p_jobs jsonb)
RETURNS TABLE (dataset text, data_id text, withdrawn boolean)
LANGUAGE sql STABLE SET search_path = opendataflow, pg_temp SET enable_hashjoin = on AS $$
    WITH RECURSIVE link AS MATERIALIZED (SELECT * FROM links_after(p_jobs)),
    declared AS MATERIALIZED (SELECT p.dataset, p.data_id FROM unnest(p_datasets, p_ids) AS p(dataset, data_id)),
    removed AS MATERIALIZED (SELECT r.dataset, r.data_id FROM unnest(p_removed, p_removed_ids) AS r(dataset, data_id)),
    orphan AS MATERIALIZED (SELECT o.job, o.data_id FROM orphaned_tasks(p_datasets, p_ids, p_jobs) o),
    id AS MATERIALIZED (SELECT r.data_id FROM removed r UNION SELECT o.data_id FROM orphan o),
    candidate(dataset, data_id) AS (
        SELECT c.dataset, c.data_id
        FROM (SELECT r.dataset, r.data_id FROM removed r
              UNION
              SELECT l.dataset, o.data_id FROM orphan o JOIN link l ON l.job = o.job AND l.spreads) s
        CROSS JOIN chunk_of(s.dataset, s.data_id) c WHERE c.retired_from IS NULL
        UNION
        SELECT c.dataset, c.data_id
        FROM candidate b
        JOIN link s ON s.dataset = b.dataset AND s.is_source
        JOIN link l ON l.job = s.job AND l.spreads
        CROSS JOIN chunk_of(l.dataset, b.data_id) c WHERE c.retired_from IS NULL
    ),
    upstream(dataset) AS (  -- only these can support a candidate or an orphaned task
        SELECT b.dataset FROM candidate b
        UNION
        SELECT l.dataset FROM orphan o JOIN link l ON l.job = o.job
        UNION
        SELECT s.dataset FROM upstream u JOIN link l ON l.dataset = u.dataset JOIN link s ON s.job = l.job AND s.is_source
    ),
    there(dataset, data_id) AS (
        SELECT c.dataset, c.data_id
        FROM upstream u CROSS JOIN id i CROSS JOIN chunk_of(u.dataset, i.data_id) c
        LEFT JOIN candidate k ON k.dataset = c.dataset AND k.data_id = c.data_id
        LEFT JOIN removed r ON r.dataset = c.dataset AND r.data_id = c.data_id
        WHERE c.retired_from IS NULL AND (k.data_id IS NULL OR c.by_hand OR (c.in_source AND r.data_id IS NULL))
        UNION
        SELECT d.dataset, d.data_id FROM declared d JOIN id i ON i.data_id = d.data_id
        UNION
        SELECT l.dataset, v.data_id
        FROM there v
        JOIN link s ON s.dataset = v.dataset AND s.is_source
        JOIN link l ON l.job = s.job AND l.spreads
        WHERE in_range(v.data_id, s.chunk_from, s.chunk_to) OR EXISTS (SELECT FROM chunk_of(l.dataset, v.data_id))
    )
    SELECT v.dataset, v.data_id, false FROM there v
    UNION ALL
    SELECT c.dataset, c.data_id, true FROM (SELECT * FROM candidate EXCEPT SELECT * FROM there) c
$$;

-- Return whether a chunk was processed or is being processed: a run has made it, one of its tasks is DONE or RUNNING, or a run of
-- a job that it belongs to has succeeded. A resubmit changes none of this: what was made is still where it was written.
CREATE FUNCTION opendataflow.is_finished(p_dataset text, p_id text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = opendataflow, pg_temp AS $$
    SELECT EXISTS (SELECT FROM chunk_of(p_dataset, p_id) c
                   WHERE c.run IS NOT NULL AND coalesce(c.held_status, c.retired_from, c.status) IN ('READY', 'PENDING', 'RUNNING'))
        OR EXISTS (SELECT FROM job_dataset l CROSS JOIN task_of(l.job, p_id) t
                   WHERE l.dataset = p_dataset AND coalesce(t.held_from, t.retired_from, t.state) IN ('DONE', 'RUNNING'))
        OR EXISTS (SELECT FROM job_dataset l CROSS JOIN runs_of(l.job, p_id) r
                   WHERE l.dataset = p_dataset AND r.state = 'SUCCEEDED')
$$;

-- Return a bound as a number, also from a text; null for anything else.
CREATE FUNCTION opendataflow.bound_number(p_bound jsonb) RETURNS numeric
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN jsonb_typeof(p_bound) = 'number' OR (jsonb_typeof(p_bound) = 'string' AND p_bound #>> '{}' ~ '^-?\d{1,100}(\.\d{1,100})?$')
                THEN (p_bound #>> '{}')::numeric END
$$;

-- Return a bound as a time, a text of fixed width whose order is that of the times; null for anything else.
CREATE FUNCTION opendataflow.bound_time(p_bound jsonb) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN jsonb_typeof(p_bound) = 'string' AND b.text ~ '^\d{4}-\d\d-\d\d([T ]\d\d(:\d\d(:\d\d)?)?)?$'
                THEN translate(b.text, 'T', ' ') || substr(' 00:00:00', length(b.text) - 9) END
    FROM (SELECT p_bound #>> '{}' AS text) b
$$;

-- Return the key of a bound that is a text or a time: the order of keys is that of the bytes of the text.
CREATE FUNCTION opendataflow.bound_key(p_bound jsonb) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT encode(convert_to(coalesce(opendataflow.bound_time(p_bound), p_bound #>> '{}'), 'UTF8'), 'hex')
$$;

-- Return the kind of bounds: hash, date (with its time zone), range (of numbers), text, list (of one value), rest (all other rows),
-- nulls, or null if the bounds can't be compared.
CREATE FUNCTION opendataflow.bounds_kind(p_bounds jsonb) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN jsonb_typeof(p_bounds) IS DISTINCT FROM 'object' THEN NULL
                WHEN p_bounds -> 'rest' = 'true' THEN 'rest'
                WHEN p_bounds ? 'buckets' THEN CASE WHEN p_bounds ->> 'buckets' ~ '^0*[1-9]\d{0,8}$' AND p_bounds ->> 'bucket' ~ '^\d{1,9}$' THEN 'hash' END
                WHEN jsonb_typeof(p_bounds -> 'value') <> 'null' THEN 'list'
                WHEN NOT e.is_there THEN CASE WHEN p_bounds -> 'nulls' = 'true' THEN 'nulls' END
                WHEN e.is_number THEN 'range'
                WHEN e.is_time THEN 'date' || coalesce(' ' || (p_bounds ->> 'zone'), '')
                WHEN e.is_text THEN 'text' END
    FROM (SELECT count(*) > 0 AS is_there, bool_and(opendataflow.bound_number(b) IS NOT NULL) AS is_number,
                 bool_and(opendataflow.bound_time(b) IS NOT NULL) AS is_time, bool_and(jsonb_typeof(b) = 'string') AS is_text
          FROM (VALUES (p_bounds -> 'from'), (p_bounds -> 'to')) AS v(b) WHERE jsonb_typeof(b) <> 'null') e
$$;

-- Return whether bounds are from one number to another and nothing else, as a chunk source of ranges writes them.
CREATE FUNCTION opendataflow.is_range_of_numbers(p_bounds jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(jsonb_typeof(p_bounds -> 'from') = 'number' AND jsonb_typeof(p_bounds -> 'to') = 'number'
                    AND NOT p_bounds ?| '{rest, buckets, value, nulls, predicate}', false)
$$;

-- Return whether a chunk has no row of a `rest` chunk: it is one of the values or in the dates that the rest leaves out.
CREATE FUNCTION opendataflow.is_left_out(p_rest jsonb, p_bounds jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_bounds -> 'rest' = 'true' THEN false
                WHEN p_rest ? 'values' THEN coalesce(p_rest -> 'values' @> (p_bounds -> 'value'), false)
                ELSE coalesce(opendataflow.bound_key(p_bounds -> 'from') >= opendataflow.bound_key(p_rest -> 'from') COLLATE "C"
                              AND opendataflow.bound_key(p_bounds -> 'to') <= opendataflow.bound_key(p_rest -> 'to') COLLATE "C", false) END
$$;

-- Return the bounds that a data id has by itself in a table that is partitioned by p_type; null if it has none.
-- core/chunks/chunk_bounds.py gives runs the same bounds: tests/sql/test_bounds_of_ids.py compares them.
CREATE FUNCTION opendataflow.bounds_of_id(p_id text, p_type text) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN p_id = 'null' AND p_type IN ('date', 'range') THEN '{"nulls": true}'
                WHEN p_type = 'list' THEN jsonb_build_object('value', p_id)
                WHEN h.part[1]::numeric < h.part[2]::numeric
                    THEN jsonb_build_object('bucket', h.part[1]::numeric, 'buckets', h.part[2]::numeric)
                WHEN r.part IS NOT NULL AND (r.part[1]::numeric <= r.part[2]::numeric) IS NOT FALSE
                    THEN jsonb_strip_nulls(jsonb_build_object('from', coalesce(r.part[1], r.part[4])::numeric,
                                                              'to', coalesce(r.part[2], r.part[3])::numeric + 1))
                WHEN to_char(f.first, 'YYYY-MM-DD') LIKE p_id || '%' AND n.next < '10000-01-01'
                    THEN jsonb_build_object('from', to_char(f.first, 'YYYY-MM-DD'), 'to', to_char(n.next, 'YYYY-MM-DD')) END
    FROM regexp_match(CASE p_type WHEN 'hash' THEN p_id END, '^([0-9]+)-of-([0-9]+)$') AS h(part),
         regexp_match(CASE p_type WHEN 'range' THEN p_id END, '^(?:[0-9]+_)?(?:(-?[0-9]+)-(-?[0-9]+)|\.\.(-?[0-9]+)|(-?[0-9]+)\.\.)$') AS r(part),
         regexp_match(CASE p_type WHEN 'date' THEN p_id END, '^([0-9]{4})-(0[1-9]|1[0-2])(?:-(0[1-9]|[12][0-9]|3[01]))?$') AS d(part),
         LATERAL (SELECT make_date(nullif(d.part[1]::integer, 0), d.part[2]::integer, 1) + coalesce(d.part[3]::integer, 1) - 1 AS first) f,
         LATERAL (SELECT f.first + CASE WHEN d.part[3] IS NULL THEN interval '1 month' ELSE '1 day' END AS next) n
$$;

-- Return the bounds that say which rows a chunk has: those that are stored, else those of its id in the column of the
-- partitioning ({column, type}) of its data set. Null if nothing says it.
CREATE FUNCTION opendataflow.meant_bounds(p_bounds jsonb, p_id text, p_partitioning jsonb) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN jsonb_typeof(p_bounds) = 'object' AND p_bounds ?| '{from, to, value, bucket, nulls, rest, predicate}' THEN p_bounds
                WHEN jsonb_typeof(p_partitioning) = 'object' THEN opendataflow.bounds_of_id(p_id, p_partitioning ->> 'type') || jsonb_build_object('column', p_partitioning -> 'column')
                WHEN jsonb_typeof(p_bounds) = 'object' THEN p_bounds END
$$;

-- Return the partitionings that an apply declares, {dataset: {column, type}}.
CREATE FUNCTION opendataflow.stated_partitionings(p_datasets jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(jsonb_object_agg(d.value ->> 'id', d.value -> 'partitioning'), '{}')
    FROM jsonb_array_elements(p_datasets) AS d WHERE jsonb_typeof(d.value -> 'partitioning') = 'object'
$$;

-- Return the present partitionings of data sets, in the same form.
CREATE FUNCTION opendataflow.partitionings(p_datasets text[]) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_object_agg(d.id, d.partitioning), '{}')
    FROM opendataflow.dataset d WHERE d.id = ANY (p_datasets) AND jsonb_typeof(d.partitioning) = 'object'
$$;

-- Return the bounds that given chunks will mean, if anything says it. is_other: the chunk is not there, or means others now.
-- returns: it was withdrawn. p_partitionings: those of their data sets after the change.
CREATE FUNCTION opendataflow.meanings(p_datasets text[], p_ids text[], p_bounds jsonb[], p_partitionings jsonb)
RETURNS TABLE (dataset text, data_id text, bounds jsonb, is_other boolean, returns boolean)
LANGUAGE sql STABLE SET search_path = opendataflow, pg_temp AS $$
    WITH before AS MATERIALIZED (SELECT partitionings(p_datasets) AS all_of)  -- once, not for each chunk
    SELECT m.dataset, m.data_id, m.bounds,
           m.known IS NULL OR meant_bounds(m.stored, m.data_id, before.all_of -> m.dataset) IS DISTINCT FROM m.bounds, m.retired
    FROM before CROSS JOIN LATERAL (
        SELECT p.dataset, p.data_id, c.data_id AS known, c.bounds AS stored, c.retired_from IS NOT NULL AS retired,
               meant_bounds(CASE WHEN jsonb_typeof(p.bounds) = 'object' THEN p.bounds ELSE c.bounds END, p.data_id, p_partitionings -> p.dataset) AS bounds
        FROM unnest(p_datasets, p_ids, p_bounds) AS p(dataset, data_id, bounds) LEFT JOIN chunk_of(p.dataset, p.data_id) c ON true) m
    WHERE m.bounds IS NOT NULL
$$;

-- Return the given chunks whose bounds overlap those of another chunk of their data set: of any finished chunk, also a retired one,
-- and of any chunk that is still to do, unless it is in p_settled, p_settled_ids. The given ones are compared with each other, too.
-- Bounds of two kinds or two columns, such as dates and buckets, overlap: they divide the same rows in two ways.
-- Texts are compared by their bytes. Texts of one plan are not: only their database knows their order.
-- Chunks whose bounds nothing says, and bounds that no chunk source, list or plan writes, are not compared.
-- p_bounds: the bounds that the chunks mean. p_partitionings: those of the data sets, for the bounds of the other chunks.
CREATE FUNCTION opendataflow.overlapping_chunks(p_datasets text[], p_ids text[], p_bounds jsonb[], p_settled text[], p_settled_ids text[],
                                                p_partitionings jsonb)
RETURNS TABLE (dataset text, data_id text)
LANGUAGE sql STABLE SET search_path = opendataflow, pg_temp SET enable_hashjoin = on AS $$
    -- Groups and windows instead of joins of the lists: the planner believes that the lists are short, and would choose nested loops.
    WITH span AS MATERIALIZED (  -- data sets of which all given chunks are ranges of numbers in one column
        SELECT n.dataset, min((n.bounds -> 'from')::numeric) AS low, max((n.bounds -> 'to')::numeric) AS high, min(n.bounds ->> 'column') AS by_column
        FROM (SELECT *, is_range_of_numbers(bounds) AS is_range FROM unnest(p_datasets, p_bounds) AS g(dataset, bounds)) g
        CROSS JOIN LATERAL (SELECT g.dataset, CASE WHEN g.is_range THEN g.bounds END AS bounds) n
        GROUP BY n.dataset HAVING bool_and(g.is_range) AND count(DISTINCT coalesce(n.bounds -> 'column', 'null')) = 1
    ), known AS MATERIALIZED (
        SELECT k.dataset, k.data_id, bool_or(k.is_given) AS is_given, bool_or(k.is_settled) AS is_settled, max(k.bounds::text)::jsonb AS bounds
        FROM (SELECT p.dataset, p.data_id, NULL::jsonb AS bounds, true AS is_given, false AS is_settled FROM unnest(p_datasets, p_ids) AS p(dataset, data_id)
              UNION ALL
              SELECT p.dataset, p.data_id, NULL, false, true FROM unnest(p_settled, p_settled_ids) AS p(dataset, data_id)
              UNION ALL
              SELECT c.dataset, c.data_id, meant_bounds(c.bounds, c.data_id, p_partitionings -> c.dataset), false, c.retired_from IS NOT NULL
              FROM chunk c LEFT JOIN span s ON s.dataset = c.dataset
              WHERE c.dataset = ANY (ARRAY(SELECT DISTINCT d FROM unnest(p_datasets) AS d))
                AND (jsonb_typeof(c.bounds) = 'object' OR p_partitionings ? c.dataset)
                -- Most chunks of a long source are beside the few that are added to it. Only the others are worth a close look.
                AND CASE WHEN is_range_of_numbers(c.bounds) AND c.bounds ->> 'column' IS NOT DISTINCT FROM s.by_column
                         THEN (c.bounds -> 'to')::numeric <= s.low OR (c.bounds -> 'from')::numeric >= s.high END IS NOT TRUE) k
        GROUP BY k.dataset, k.data_id
    ), one AS MATERIALIZED (
        SELECT n.dataset, n.data_id, n.bounds, bounds_kind(n.bounds) AS kind, true AS is_new FROM unnest(p_datasets, p_ids, p_bounds) AS n(dataset, data_id, bounds)
        UNION ALL
        SELECT k.dataset, k.data_id, k.bounds, bounds_kind(k.bounds), false
        FROM known k WHERE k.bounds IS NOT NULL AND NOT k.is_given AND CASE WHEN k.is_settled THEN is_finished(k.dataset, k.data_id) ELSE true END
    ), part AS MATERIALIZED (
        SELECT o.*, NOT (o.is_new AND o.kind = 'text' AND o.bounds ? 'predicate') AS counts,
               bound_number(o.bounds -> 'from') AS low, bound_number(o.bounds -> 'to') AS high,
               bound_key(o.bounds -> 'from') COLLATE "C" AS low_key, bound_key(o.bounds -> 'to') COLLATE "C" AS high_key
        FROM one o WHERE o.kind IS NOT NULL
    ), spread AS MATERIALIZED (  -- numbers, or keys; an open end is less or greater than all
        SELECT s.dataset, s.data_id, s.kind, s.is_new, s.counts, coalesce(s.low, '-infinity') AS low, coalesce(s.high, 'infinity') AS high, '' AS low_key, '' AS high_key
        FROM part s WHERE s.kind = 'range' AND (s.low < s.high) IS NOT FALSE
        UNION ALL
        SELECT s.dataset, s.data_id, s.kind, s.is_new, s.counts, 0, 0, coalesce(s.low_key, ''), coalesce(s.high_key, 'g')
        FROM part s WHERE s.kind NOT IN ('range', 'hash', 'list', 'rest', 'nulls') AND (s.low_key < s.high_key) IS NOT FALSE
    ), swept AS (
        SELECT s.*,
               max(s.high) FILTER (WHERE s.counts) OVER before AS reached, min(s.low) FILTER (WHERE s.counts) OVER after AS next_low,
               max(s.high_key COLLATE "C") FILTER (WHERE s.counts) OVER before AS reached_key,
               min(s.low_key COLLATE "C") FILTER (WHERE s.counts) OVER after AS next_low_key
        FROM spread s
        WINDOW before AS (PARTITION BY s.dataset, s.kind ORDER BY s.low, s.low_key COLLATE "C", s.data_id
                          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
               -- In reverse: Postgres would compute a frame whose start moves anew for each row.
               after AS (PARTITION BY s.dataset, s.kind ORDER BY s.low DESC, s.low_key COLLATE "C" DESC, s.data_id DESC
                         ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
    ), bucket AS MATERIALIZED (
        SELECT b.dataset, b.data_id, b.is_new, b.counts, (b.bounds ->> 'bucket')::bigint AS bucket, (b.bounds ->> 'buckets')::bigint AS buckets
        FROM part b WHERE b.kind = 'hash'
    ), pair AS MATERIALIZED (  -- different numbers of buckets: two buckets overlap if they are equal modulo the greatest common divisor
        SELECT DISTINCT o.dataset, o.buckets AS one, t.buckets AS two
        FROM (SELECT DISTINCT b.dataset, b.buckets FROM bucket b) o
        JOIN (SELECT DISTINCT b.dataset, b.buckets FROM bucket b) t ON t.dataset = o.dataset AND t.buckets > o.buckets
    ), residue AS MATERIALIZED (
        SELECT b.dataset, b.data_id, b.is_new, b.counts, p.one, p.two, b.buckets = p.one AS of_one, b.bucket % gcd(p.one, p.two) AS residue
        FROM bucket b JOIN pair p ON p.dataset = b.dataset AND b.buckets IN (p.one, p.two)
    ), rest AS MATERIALIZED (
        SELECT * FROM part r WHERE r.kind = 'rest'
    ), way AS MATERIALIZED (  -- how the rows are divided
        SELECT DISTINCT w.dataset, w.kind, w.bounds ->> 'column' AS by_column FROM part w WHERE w.counts AND w.kind NOT IN ('rest', 'nulls')
    )
    SELECT s.dataset, s.data_id FROM swept s
    WHERE s.is_new AND (s.reached > s.low OR s.next_low < s.high OR s.reached_key > s.low_key COLLATE "C" OR s.next_low_key < s.high_key COLLATE "C")
    UNION
    SELECT n.dataset, n.data_id FROM part n JOIN way w ON w.dataset = n.dataset AND (w.kind <> n.kind OR w.by_column <> n.bounds ->> 'column')
    WHERE n.is_new AND n.kind NOT IN ('rest', 'nulls')
    UNION
    SELECT n.dataset, n.data_id
    FROM (SELECT b.*, count(*) FILTER (WHERE b.counts) OVER (PARTITION BY b.dataset, b.buckets, b.bucket) - b.counts::integer AS others FROM bucket b) n
    WHERE n.is_new AND n.others > 0
    UNION
    SELECT n.dataset, n.data_id
    FROM (SELECT b.*, bool_or(b.counts AND b.of_one) OVER same AS is_in_one, bool_or(b.counts AND NOT b.of_one) OVER same AS is_in_two
          FROM residue b WINDOW same AS (PARTITION BY b.dataset, b.one, b.two, b.residue)) n
    WHERE n.is_new AND CASE WHEN n.of_one THEN n.is_in_two ELSE n.is_in_one END
    UNION
    SELECT n.dataset, n.data_id
    FROM (SELECT o.*, count(*) FILTER (WHERE o.counts) OVER (PARTITION BY o.dataset, o.bounds ->> 'value') - o.counts::integer AS others
          FROM part o WHERE o.kind = 'list') n
    WHERE n.is_new AND n.others > 0
    UNION
    SELECT n.dataset, n.data_id
    FROM (SELECT o.*, count(*) FILTER (WHERE o.counts) OVER (PARTITION BY o.dataset) - o.counts::integer AS others
          FROM part o WHERE o.bounds -> 'nulls' = 'true') n
    WHERE n.is_new AND n.others > 0
    UNION
    SELECT n.dataset, n.data_id FROM part n JOIN rest r ON r.dataset = n.dataset AND r.data_id <> n.data_id
    WHERE n.is_new AND r.counts AND n.kind <> 'nulls' AND NOT is_left_out(r.bounds, n.bounds)
    UNION
    SELECT r.dataset, r.data_id FROM rest r JOIN part o ON o.dataset = r.dataset AND o.data_id <> r.data_id
    WHERE r.is_new AND o.counts AND o.kind <> 'nulls' AND NOT is_left_out(r.bounds, o.bounds)
$$;

-- Return at most five ids in natural order, for a person.
CREATE FUNCTION opendataflow.some_ids(p_ids text[]) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_agg(x.i ORDER BY opendataflow.sort_key(x.i)), '[]')
    FROM (SELECT n.i FROM (SELECT i FROM unnest(p_ids) AS i ORDER BY i COLLATE "C" LIMIT 1000) n  -- keys of all ids would be slow
          ORDER BY opendataflow.sort_key(n.i) LIMIT 5) x
$$;

-- Return the declared chunks, those in the sources of the declared jobs, and all that follow from them after the apply.
-- p_gone, p_gone_ids: the chunks that it retires.
CREATE FUNCTION opendataflow.reached_chunks(p_datasets text[], p_ids text[], p_jobs jsonb, p_gone text[], p_gone_ids text[])
RETURNS TABLE (dataset text, data_id text)
LANGUAGE sql STABLE SET search_path = opendataflow, pg_temp SET enable_hashjoin = on AS $$
    WITH RECURSIVE link AS MATERIALIZED (
        SELECT * FROM links_after(p_jobs)
    ), first AS (
        SELECT * FROM unnest(p_datasets, p_ids)
        UNION
        (SELECT c.dataset, c.data_id FROM link s JOIN job_changes(p_jobs) n ON n.job = s.job JOIN chunk c ON c.dataset = s.dataset
         WHERE s.is_source AND c.retired_from IS NULL
         EXCEPT SELECT * FROM unnest(p_gone, p_gone_ids))
    ), reached(dataset, data_id) AS (
        SELECT * FROM first
        UNION
        SELECT l.dataset, r.data_id
        FROM reached r JOIN link s ON s.dataset = r.dataset AND s.is_source
        JOIN link l ON l.job = s.job AND l.spreads
        WHERE in_range(r.data_id, s.chunk_from, s.chunk_to)
           OR EXISTS (SELECT FROM chunk_of(l.dataset, r.data_id) c WHERE c.retired_from IS NOT NULL)
    )
    SELECT * FROM reached
$$;

-- Compute the changes of an apply, one row for each changed chunk and task. `what` is, for kind 'chunk',
--   added, returned (added before, and withdrawn), retired, changed (its bounds), overlapping (added or with other bounds, so that rows are processed again),
-- and for kind 'task'
--   removed (still to do), retired (DONE or RUNNING), incomplete (an added output was never made),
--   changed (the bounds of its chunk, also if the id returns), stale (an input was added or removed, or changed while the job was deleted),
--   fresh (stale until now, because the inputs are again those that its run has read).
-- `finished`: DONE, RUNNING, or made by a run.
CREATE FUNCTION opendataflow.changes_of_apply(p_datasets text[], p_ids text[], p_bounds jsonb[], p_removed text[], p_removed_ids text[],
                                              p_jobs jsonb, p_partitionings jsonb)
RETURNS TABLE (kind text, owner text, data_id text, what text, finished boolean)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
    v_added    text[];
    v_added_in text[];
    v_other    text[];
    v_other_in text[];
    v_gone     text[];
    v_gone_in  text[];
    v_there    text[];
    v_there_in text[];
BEGIN
    SELECT array_agg(n.dataset) FILTER (WHERE n.added), array_agg(n.data_id) FILTER (WHERE n.added),
           array_agg(n.dataset) FILTER (WHERE n.other), array_agg(n.data_id) FILTER (WHERE n.other)
    INTO v_added_in, v_added, v_other_in, v_other
    FROM (SELECT p.*, c.data_id IS NULL OR c.retired_from IS NOT NULL AS added,
                 c.data_id IS NOT NULL AND jsonb_typeof(p.bounds) = 'object' AND c.bounds IS DISTINCT FROM p.bounds AS other
          FROM unnest(p_datasets, p_ids, p_bounds) AS p(dataset, data_id, bounds)
          LEFT JOIN chunk_of(p.dataset, p.data_id) c ON true) n
    WHERE n.added OR n.other;
    SELECT array_agg(c.dataset) FILTER (WHERE c.withdrawn), array_agg(c.data_id) FILTER (WHERE c.withdrawn),
           array_agg(c.dataset) FILTER (WHERE NOT c.withdrawn), array_agg(c.data_id) FILTER (WHERE NOT c.withdrawn)
    INTO v_gone_in, v_gone, v_there_in, v_there
    FROM chunks_after(p_datasets, p_ids, p_removed, p_removed_ids, p_jobs) c;

    RETURN QUERY SELECT 'chunk', a.dataset, a.data_id, CASE WHEN c.data_id IS NULL THEN 'added' ELSE 'returned' END, false
    FROM unnest(v_added_in, v_added) AS a(dataset, data_id) LEFT JOIN chunk_of(a.dataset, a.data_id) c ON true;
    -- An id that returns with its finished tasks is not processed again, so it can't overlap.
    RETURN QUERY SELECT 'chunk', o.dataset, o.data_id, 'overlapping', true
    FROM (SELECT array_agg(n.dataset) AS datasets, array_agg(n.data_id) AS ids, array_agg(n.bounds) AS bounds
          FROM meanings(p_datasets, p_ids, p_bounds, p_partitionings) n
          WHERE (n.is_other OR n.returns) AND NOT is_finished(n.dataset, n.data_id)) n,
         overlapping_chunks(n.datasets, n.ids, n.bounds, v_gone_in, v_gone, p_partitionings) o;
    RETURN QUERY SELECT 'chunk', g.dataset, g.data_id, 'retired', is_finished(g.dataset, g.data_id)
    FROM unnest(v_gone_in, v_gone) AS g(dataset, data_id);
    RETURN QUERY
    WITH link AS MATERIALIZED (SELECT * FROM links_after(p_jobs)),
    there AS MATERIALIZED (SELECT n.dataset, n.data_id FROM unnest(v_there_in, v_there) AS n(dataset, data_id)),
    other AS MATERIALIZED (
        SELECT p.dataset, p.data_id, c.retired_from IS NOT NULL AS returns,
               jsonb_typeof(c.bounds) IS NOT DISTINCT FROM 'object' AND is_finished(p.dataset, p.data_id) AS finished
        FROM unnest(v_other_in, v_other) AS p(dataset, data_id), chunk_of(p.dataset, p.data_id) c
    ), reached AS MATERIALIZED (  -- a RUNNING task that has no id and gets none is going already
        SELECT s.job, r.data_id FROM reached_chunks(p_datasets, p_ids, p_jobs, v_gone_in, v_gone) r
        JOIN link s ON s.dataset = r.dataset AND s.is_source
    ), gone AS MATERIALIZED (
        SELECT s.job, g.data_id
        FROM unnest(v_gone_in, v_gone) AS g(dataset, data_id) JOIN link s ON s.dataset = g.dataset AND s.is_source
        UNION
        SELECT o.job, o.data_id FROM orphaned_tasks(p_datasets, p_ids, p_jobs) o
        WHERE NOT EXISTS (SELECT FROM link s JOIN there n ON n.dataset = s.dataset
                          WHERE s.job = o.job AND s.is_source AND n.data_id = o.data_id)
        UNION  -- out of the range of the job; finished tasks stay
        SELECT n.job, t.data_id FROM job_changes(p_jobs) n JOIN task t ON t.job = n.job
        WHERE n.ranged AND t.state IN ('WAITING', 'QUEUED', 'RETRYING', 'FAILED') AND NOT in_range(t.data_id, n.chunk_from, n.chunk_to)
    )
    SELECT 'chunk', c.dataset, c.data_id, 'changed', c.finished FROM other c WHERE NOT c.returns
    UNION ALL
    SELECT DISTINCT 'task', t.job, t.data_id, 'changed', true
    FROM other c JOIN link l ON l.dataset = c.dataset CROSS JOIN task_of(l.job, c.data_id) t
    WHERE c.finished AND (t.state IN ('DONE', 'RUNNING') OR (t.retired_from = 'DONE' AND l.is_source))
      AND NOT EXISTS (SELECT FROM gone g WHERE g.job = t.job AND g.data_id = t.data_id)
      AND (t.state <> 'RUNNING' OR has_source(t.job, t.data_id) OR (t.job, t.data_id) IN (SELECT r.job, r.data_id FROM reached r))
    UNION ALL
    SELECT 'task', t.job, t.data_id, CASE WHEN t.finished THEN 'retired' ELSE 'removed' END, t.finished
    FROM (SELECT t.job, t.data_id, coalesce(t.held_from, t.state) IN ('DONE', 'RUNNING') AS finished
          FROM gone g CROSS JOIN task_of(g.job, g.data_id) t WHERE t.state <> 'RETIRED') t
    UNION ALL
    SELECT 'task', t.job, t.data_id, x.what, true
    FROM (SELECT * FROM job_changes(p_jobs) n
          WHERE NOT n.known OR n.added_outputs || n.added_inputs || n.removed_inputs <> '{}' OFFSET 0) n
    CROSS JOIN LATERAL (SELECT * FROM task t WHERE t.job = n.job AND t.state IN ('DONE', 'RUNNING') OFFSET 0) t
    LEFT JOIN LATERAL (SELECT r.* FROM run_of(t.run) r WHERE r.job = t.job) r ON true
    CROSS JOIN LATERAL (
        SELECT 'incomplete' AS what WHERE EXISTS (
            SELECT FROM unnest(n.added_outputs) AS o LEFT JOIN chunk_of(o, t.data_id) c ON true
            WHERE (coalesce(c.held_status, c.retired_from, c.status) IN ('READY', 'PENDING')) IS NOT TRUE
              AND (t.state = 'RUNNING' AND o = ANY (r.writes)) IS NOT TRUE)
        UNION ALL SELECT CASE WHEN t.stale THEN 'fresh' ELSE 'stale' END
        WHERE (NOT n.known OR n.added_inputs || n.removed_inputs <> '{}')
          AND CASE WHEN t.stale THEN NOT t.bounds_changed AND other_inputs(r.reads, r.forced, n.inputs) IS FALSE AND read_present_versions(t.run)
                   ELSE other_inputs(r.reads, r.forced, n.inputs)
                        OR (NOT n.known AND t.state = 'DONE' AND read_other_versions(t.run) AND wrote_one_of(n.added_outputs, t.data_id, t.run)) END) x
    WHERE NOT EXISTS (SELECT FROM gone g WHERE g.job = t.job AND g.data_id = t.data_id)
      AND (t.state <> 'RUNNING' OR has_source(t.job, t.data_id) OR (t.job, t.data_id) IN (SELECT r.job, r.data_id FROM reached r));
END $$;

-- Return the plan of an apply from its changes, the columns of changes_of_apply():
--   {hash, needs: [retire, overlap, backfill], datasets: [{dataset, added, returned, retired, retired_finished, changed, changed_finished,
--    overlapping, examples: {…}}], jobs: [{job, added, returned_done, returned_held, returned_skipped, removed, retired, incomplete, changed, stale, fresh, outputs, removed_outputs,
--    examples: {…}}]}
-- Examples are at most five ids for each count. `added` and `returned_…` of a job come from with_added_tasks(), because counting them is slow.
-- The hash identifies the change of the declarations, not the progress of runs meanwhile.
CREATE FUNCTION opendataflow.plan_of(p_kinds text[], p_owners text[], p_ids text[], p_what text[], p_finished boolean[], p_jobs jsonb)
RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_datasets jsonb;
    v_jobs     jsonb;
    v_needs    text[];
    v_hash     text;
BEGIN
    WITH change AS MATERIALIZED (
        SELECT * FROM unnest(p_kinds, p_owners, p_ids, p_what, p_finished) AS n(kind, owner, data_id, what, finished)
    ), counted AS MATERIALIZED (
        SELECT c.kind, c.owner, c.what, count(*) AS n, count(*) FILTER (WHERE c.finished) AS finished,
               some_ids(array_agg(c.data_id)) AS examples, md5(string_agg(c.data_id, E'\n' ORDER BY c.data_id COLLATE "C")) AS digest
        FROM change c GROUP BY 1, 2, 3
    ), dataset AS (
        SELECT c.owner, jsonb_object_agg(c.what, c.n) || jsonb_build_object(
                   'dataset', c.owner, 'retired_finished', coalesce(sum(c.finished) FILTER (WHERE c.what = 'retired'), 0),
                   'changed_finished', coalesce(sum(c.finished) FILTER (WHERE c.what = 'changed'), 0),
                   'examples', jsonb_object_agg(c.what, c.examples)) AS found
        FROM counted c WHERE c.kind = 'chunk' GROUP BY c.owner
    ), linked AS MATERIALIZED (
        SELECT * FROM job_changes(p_jobs)
    ), job AS (
        SELECT o.owner, coalesce(t.counts, '{}') || jsonb_build_object(
                   'job', o.owner, 'examples', coalesce(t.examples, '{}'), 'outputs', n.added_outputs, 'removed_outputs', n.removed_outputs) AS found
        FROM (SELECT c.owner FROM counted c WHERE c.kind = 'task'
              UNION SELECT n.job FROM linked n WHERE n.known AND n.removed_outputs <> '{}') o
        LEFT JOIN linked n ON n.job = o.owner
        CROSS JOIN LATERAL (SELECT jsonb_object_agg(c.what, c.n) AS counts, jsonb_object_agg(c.what, c.examples) AS examples
                            FROM counted c WHERE c.kind = 'task' AND c.owner = o.owner) t
    )
    SELECT (SELECT coalesce(jsonb_agg(d.found ORDER BY d.owner), '[]') FROM dataset d),
           (SELECT coalesce(jsonb_agg(j.found ORDER BY j.owner), '[]') FROM job j),
           ARRAY(SELECT n.need FROM (VALUES
               (1, 'retire', EXISTS (SELECT FROM counted c WHERE c.what = 'retired' AND c.finished > 0)),
               (2, 'overlap', EXISTS (SELECT FROM counted c WHERE c.what = 'overlapping')),
               (3, 'backfill', EXISTS (SELECT FROM counted c WHERE c.kind = 'task' AND c.what IN ('incomplete', 'changed')))
               ) AS n(place, need, holds) WHERE n.holds ORDER BY n.place),
           left(md5(concat_ws('|',
               (SELECT string_agg(concat_ws(' ', c.owner, c.what, c.digest), '|' ORDER BY c.owner COLLATE "C", c.what)
                FROM counted c WHERE c.kind = 'chunk' AND c.what <> 'overlapping'),
               (SELECT string_agg(n::text, '|' ORDER BY n.job COLLATE "C") FROM job_changes(p_jobs) n))), 12)
    INTO v_datasets, v_jobs, v_needs, v_hash;
    RETURN jsonb_build_object('hash', v_hash, 'needs', v_needs, 'datasets', v_datasets, 'jobs', v_jobs);
END $$;

-- Return the tasks that the apply would create or bring back, with the state that a task gets back; null for a new one.
-- p_gone, p_gone_ids: the chunks that it retires.
CREATE FUNCTION opendataflow.added_tasks(p_datasets text[], p_ids text[], p_jobs jsonb, p_gone text[], p_gone_ids text[])
RETURNS TABLE (job text, data_id text, returns_as text)
LANGUAGE sql STABLE SET search_path = opendataflow, pg_temp SET enable_hashjoin = on AS $$
    SELECT DISTINCT s.job, r.data_id, t.retired_from
    FROM reached_chunks(p_datasets, p_ids, p_jobs, p_gone, p_gone_ids) r
    JOIN links_after(p_jobs) s ON s.dataset = r.dataset AND s.is_source LEFT JOIN task_of(s.job, r.data_id) t ON true
    WHERE CASE WHEN t.job IS NULL THEN in_range(r.data_id, s.chunk_from, s.chunk_to) ELSE t.state = 'RETIRED' END
$$;

-- Return the plan of an apply, as plan_of() does, with `missing`: the consents that are needed and not given.
-- Changes nothing. The arguments and errors are those of apply(), without DF005 and DF007.
CREATE FUNCTION opendataflow.plan_apply(p_datasets jsonb, p_jobs jsonb, p_consent jsonb DEFAULT '{}') RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_plan jsonb;
BEGIN
    PERFORM refuse_reserved_today(p_datasets, p_jobs), refuse_taken_ids(p_datasets, p_jobs);
    p_jobs := add_first_days(p_jobs);
    SELECT with_deferred(with_added_tasks(p.plan, s.datasets, s.ids, p_jobs, p.gone, p.gone_ids), p_datasets, s.deferred) INTO v_plan
    FROM stated_chunks(p_datasets, p_jobs, reachable_by_apply(p_datasets, p_jobs)) s
    CROSS JOIN LATERAL planned(s.datasets, s.ids, s.bounds, s.removed, s.removed_ids, p_jobs, stated_partitionings(p_datasets)) p;
    RETURN v_plan || jsonb_build_object('missing', missing_consents(v_plan, p_consent));
END $$;

-- Return the plan of an apply without the tasks that it would create, and the chunks and tasks that it affects:
--   gone   chunks to retire: data sets and ids
--   off    tasks to retire or to remove: jobs and ids
--   redo   finished tasks whose outputs or bounds change: jobs and ids, and whether the bounds change
CREATE FUNCTION opendataflow.planned(p_datasets text[], p_ids text[], p_bounds jsonb[], p_removed text[], p_removed_ids text[],
                                     p_jobs jsonb, p_partitionings jsonb,
                                     OUT plan jsonb, OUT gone text[], OUT gone_ids text[], OUT off text[], OUT off_ids text[],
                                     OUT redo text[], OUT redo_ids text[], OUT bounded boolean[])
LANGUAGE sql STABLE SET search_path = opendataflow, pg_temp AS $$
    SELECT plan_of(array_agg(c.kind), array_agg(c.owner), array_agg(c.data_id), array_agg(c.what), array_agg(c.finished), p_jobs),
           array_agg(c.owner) FILTER (WHERE c.kind = 'chunk' AND c.what = 'retired'),
           array_agg(c.data_id) FILTER (WHERE c.kind = 'chunk' AND c.what = 'retired'),
           array_agg(c.owner) FILTER (WHERE c.kind = 'task' AND c.what IN ('retired', 'removed')),
           array_agg(c.data_id) FILTER (WHERE c.kind = 'task' AND c.what IN ('retired', 'removed')),
           array_agg(c.owner) FILTER (WHERE c.kind = 'task' AND c.what IN ('incomplete', 'changed')),
           array_agg(c.data_id) FILTER (WHERE c.kind = 'task' AND c.what IN ('incomplete', 'changed')),
           array_agg(c.what = 'changed') FILTER (WHERE c.kind = 'task' AND c.what IN ('incomplete', 'changed'))
    FROM changes_of_apply(p_datasets, p_ids, p_bounds, p_removed, p_removed_ids, p_jobs, p_partitionings) c
$$;

-- Return a plan with the tasks that the apply creates or brings back. p_gone, p_gone_ids: the chunks that it retires.
CREATE FUNCTION opendataflow.with_added_tasks(p_plan jsonb, p_datasets text[], p_ids text[], p_jobs jsonb, p_gone text[], p_gone_ids text[])
RETURNS jsonb
LANGUAGE sql STABLE SET search_path = opendataflow, pg_temp SET enable_hashjoin = on AS $$
    WITH added AS (
        SELECT n.job, jsonb_object_agg(n.what, n.number) AS found, jsonb_object_agg(n.what, n.examples) AS examples
        FROM (SELECT a.job, w.what, count(*) AS number, some_ids(array_agg(a.data_id)) AS examples
              FROM added_tasks(p_datasets, p_ids, p_jobs, p_gone, p_gone_ids) a
              CROSS JOIN LATERAL (SELECT CASE a.returns_as WHEN 'DONE' THEN 'returned_done' WHEN 'HELD' THEN 'returned_held'
                                                           WHEN 'SKIPPED' THEN 'returned_skipped' ELSE 'added' END AS what) w
              GROUP BY 1, 2) n
        GROUP BY n.job
    )
    SELECT p_plan || jsonb_build_object('jobs', coalesce(jsonb_agg(
        coalesce(j.value, jsonb_build_object('job', a.job)) || '{"added": 0}' || coalesce(a.found, '{}')
        || jsonb_build_object('examples', coalesce(j.value -> 'examples', '{}') || coalesce(a.examples, '{}'))
        ORDER BY coalesce(a.job, j.value ->> 'job')), '[]'))
    FROM jsonb_array_elements(p_plan -> 'jobs') AS j FULL JOIN added a ON a.job = j.value ->> 'job'
$$;

-- Return the chunks of the chunk sources that a request declares, each as a list (`chunks`) or as a rule (`source`).
-- p_deferred: not those of these data sets.
CREATE FUNCTION opendataflow.chunks_of_request(p_datasets jsonb, p_deferred text[] DEFAULT '{}') RETURNS TABLE (dataset text, data_id text, bounds jsonb)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY SELECT d.value ->> 'id', c.value ->> 'id', c.value -> 'bounds'
    FROM jsonb_array_elements(p_datasets) AS d, jsonb_array_elements(coalesce(d.value -> 'chunks', '[]')) AS c;
    RETURN QUERY SELECT d.value ->> 'id', c.data_id, c.bounds
    FROM jsonb_array_elements(p_datasets) AS d
    CROSS JOIN LATERAL chunks_of_source(d.value -> 'source', 0, source_size(d.value -> 'source')) c
    WHERE d.value ? 'source' AND d.value ->> 'id' <> ALL (p_deferred);
END $$;

-- Compare the chunk sources that a request declares with the chunks that are there. Return
--   datasets, ids, bounds   the chunks that are new, return, get other bounds or could become READY; of a data set whose partitioning
--                           changes, all
--   removed, removed_ids    the chunks that a declared chunk source has no more
-- p_deferred: not those of these data sets.
CREATE FUNCTION opendataflow.compared_sources(p_datasets jsonb, p_jobs jsonb, p_deferred text[], OUT datasets text[], OUT ids text[],
                                              OUT bounds jsonb[], OUT removed text[], OUT removed_ids text[])
LANGUAGE sql STABLE SET search_path = opendataflow, pg_temp SET enable_hashjoin = on AS $$
    WITH stated AS MATERIALIZED (
        SELECT n.id, p.partitioning IS DISTINCT FROM n.partitioning AS is_divided_anew,
               EXISTS (SELECT FROM links_after(p_jobs) l WHERE l.dataset = n.id AND l.is_output) AS is_made
        FROM (SELECT d.value ->> 'id' AS id, nullif(d.value -> 'partitioning', 'null') AS partitioning FROM jsonb_array_elements(p_datasets) AS d
              WHERE d.value ?| '{chunks,source}' AND d.value ->> 'id' <> ALL (p_deferred)) n
        LEFT JOIN dataset p ON p.id = n.id
    ), present AS MATERIALIZED (
        SELECT c.* FROM chunk c WHERE c.dataset = ANY (ARRAY(SELECT s.id FROM stated s)) AND c.in_source
    ), compared AS MATERIALIZED (
        SELECT n.dataset, n.data_id, n.bounds, p.dataset AS known_in, p.data_id AS known,
               p.retired_from IS NULL AND (jsonb_typeof(n.bounds) IS DISTINCT FROM 'object' OR p.bounds = n.bounds) AS is_same,
               p.status = 'DECLARED' AS is_declared
        FROM chunks_of_request(p_datasets, p_deferred) n FULL JOIN present p ON p.dataset = n.dataset AND p.data_id = n.data_id
    ), changed AS MATERIALIZED (
        SELECT c.* FROM compared c JOIN stated s ON s.id = c.dataset
        WHERE c.known IS NULL OR c.is_same IS NOT TRUE OR s.is_divided_anew OR (c.is_declared AND NOT s.is_made)
    )
    SELECT (SELECT coalesce(array_agg(c.dataset), '{}') FROM changed c), (SELECT coalesce(array_agg(c.data_id), '{}') FROM changed c),
           (SELECT coalesce(array_agg(c.bounds), '{}') FROM changed c),
           (SELECT coalesce(array_agg(c.known_in), '{}') FROM compared c WHERE c.data_id IS NULL),
           (SELECT coalesce(array_agg(c.known), '{}') FROM compared c WHERE c.data_id IS NULL)
$$;

-- Return the data sets whose chunk source is declared (`stated`), and what compared_sources() says of them.
-- `deferred`: data sets with a long chunk source and no chunk yet. Their chunks follow the apply in batches, and the plan needs none
-- of them: they are all new, and change nothing that exists.
-- An apply that withdraws ids needs the complete lists. Then nothing is deferred, and the declarations that are under way
-- among p_reached, the data sets that the apply can change, are part of it.
CREATE FUNCTION opendataflow.stated_chunks(p_datasets jsonb, p_jobs jsonb, p_reached text[], OUT stated text[], OUT datasets text[], OUT ids text[],
                                           OUT bounds jsonb[], OUT removed text[], OUT removed_ids text[], OUT deferred text[])
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_under_way jsonb;
BEGIN
    deferred := ARRAY(
        SELECT d.value ->> 'id' FROM jsonb_array_elements(p_datasets) AS d
        WHERE d.value ? 'source' AND source_size(d.value -> 'source') > declaring_batch()
          AND (NOT EXISTS (SELECT FROM chunk c WHERE c.dataset = d.value ->> 'id')
               OR EXISTS (SELECT FROM declaring n WHERE n.kind = 'dataset' AND n.id = d.value ->> 'id' AND n.source = d.value -> 'source')));
    SELECT c.datasets, c.ids, c.bounds, c.removed, c.removed_ids INTO datasets, ids, bounds, removed, removed_ids
    FROM compared_sources(p_datasets, p_jobs, deferred) c;
    SELECT coalesce(jsonb_agg(jsonb_build_object('id', n.id, 'source', n.source, 'partitioning', d.partitioning)), '[]') INTO v_under_way
    FROM declaring n JOIN dataset d ON d.id = n.id
    WHERE n.kind = 'dataset' AND n.id = ANY (p_reached)
      AND n.id NOT IN (SELECT d.value ->> 'id' FROM jsonb_array_elements(p_datasets) AS d WHERE d.value ?| '{chunks,source}');
    IF (deferred <> '{}' OR v_under_way <> '[]') AND (removed <> '{}' OR EXISTS (SELECT FROM orphaned_tasks(datasets, ids, p_jobs))) THEN
        deferred := '{}';
        p_datasets := p_datasets || v_under_way;
        SELECT c.datasets, c.ids, c.bounds, c.removed, c.removed_ids INTO datasets, ids, bounds, removed, removed_ids
        FROM compared_sources(p_datasets, p_jobs, '{}') c;
    END IF;
    stated := ARRAY(SELECT d.value ->> 'id' FROM jsonb_array_elements(p_datasets) AS d
                    WHERE d.value ?| '{chunks,source}' AND d.value ->> 'id' <> ALL (deferred));
END $$;

-- Return a plan with the chunks of deferred chunk sources, which are all added. The hash identifies the sources, too.
CREATE FUNCTION opendataflow.with_deferred(p_plan jsonb, p_datasets jsonb, p_deferred text[]) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF p_deferred = '{}' THEN
        RETURN p_plan;
    END IF;
    RETURN p_plan || (
        SELECT jsonb_build_object(
            'hash', left(md5((p_plan ->> 'hash') || string_agg(concat_ws(' ', d.value ->> 'id', d.value -> 'source'), '|' ORDER BY d.value ->> 'id')), 12),
            'datasets', (p_plan -> 'datasets') || coalesce(jsonb_agg(jsonb_build_object(
                'dataset', d.value ->> 'id', 'added', source_size(d.value -> 'source'), 'retired_finished', 0, 'changed_finished', 0,
                'examples', jsonb_build_object('added', (SELECT jsonb_agg(c.data_id) FROM chunks_of_source(d.value -> 'source', 0, 5) c)))
                ORDER BY d.value ->> 'id')
                FILTER (WHERE NOT EXISTS (SELECT FROM declaring n WHERE n.kind = 'dataset' AND n.id = d.value ->> 'id')), '[]'))
        FROM jsonb_array_elements(p_datasets) AS d WHERE d.value ->> 'id' = ANY (p_deferred));
END $$;
