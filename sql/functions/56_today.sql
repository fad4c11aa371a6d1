-- The reserved data set `today`: its chunks are days, READY from that day on.
-- Jobs may read `today` and nobody declares it. Runs hold no lock on it, so that any number of jobs can use one day.

-- Raise DF001 if `today` is declared as a data set or is an output of a job.
CREATE FUNCTION opendataflow.refuse_reserved_today(p_datasets jsonb, p_jobs jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_job text;
BEGIN
    IF EXISTS (SELECT FROM jsonb_array_elements(p_datasets) AS d WHERE d.value ->> 'id' = 'today') THEN
        RAISE EXCEPTION 'the data set today is built in: give yours another id' USING ERRCODE = 'DF001';
    END IF;
    SELECT j.value ->> 'id' INTO v_job FROM jsonb_array_elements(p_jobs) AS j WHERE j.value -> 'outputs' ? 'today';
    IF FOUND THEN
        RAISE EXCEPTION 'job % can''t make the data set today, which is built in', v_job USING ERRCODE = 'DF001';
    END IF;
END $$;

-- Return p_jobs with a first day for each job that reads `today` and declares no start.
-- The first day is the day of the first apply (`first_day` of the job's row, else the server's date).
CREATE FUNCTION opendataflow.add_first_days(p_jobs jsonb) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_agg(CASE
        WHEN n.value -> 'inputs' ? 'today' AND n.value ->> 'chunk_from' IS NULL
        THEN n.value || jsonb_build_object('chunk_from', coalesce(
                 (SELECT j.chunk_from FROM opendataflow.job j
                  JOIN opendataflow.job_input i ON i.job = j.id AND i.dataset = 'today'
                  WHERE j.id = n.value ->> 'id' AND NOT j.deleted),
                 n.value ->> 'first_day', to_char(clock_timestamp(), 'YYYY-MM-DD')))
        ELSE n.value END), '[]')
    FROM jsonb_array_elements(p_jobs) AS n
$$;

-- Publish the day p_today if one of the jobs reads `today`, and return the published days.
-- p_catch_up: also publish missing earlier days, back to the first day that one of the jobs has a task for.
-- Published days stay unchanged. Locks levels 0, 3.
CREATE FUNCTION opendataflow.publish_today(p_jobs text[], p_today text, p_catch_up boolean, p_actor text) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    v_days text[];
BEGIN
    SELECT array_agg(DISTINCT to_char(d, 'YYYY-MM-DD')) INTO v_days
    FROM unnest(p_jobs) AS n(job)
    JOIN job_input i ON i.job = n.job AND i.dataset = 'today'
    JOIN job j ON j.id = n.job AND NOT j.deleted
    CROSS JOIN LATERAL (SELECT min(t.data_id) AS day FROM task t
                        WHERE p_catch_up AND t.job = n.job AND t.data_id ~ '^\d{4}-\d\d-\d\d$' AND t.data_id < p_today) first
    CROSS JOIN LATERAL generate_series(coalesce(first.day, p_today)::timestamp, p_today::timestamp, '1 day') AS d;
    v_days := unpublished_days(v_days);
    IF cardinality(v_days) = 0 THEN
        RETURN '{}';
    END IF;
    PERFORM begin_event('publish', p_actor), lock_reachable('{today}'),
            create_downstream_rows(array_fill('today'::text, ARRAY[cardinality(v_days)]), v_days),
            lock_chunks(array_fill('today'::text, ARRAY[cardinality(v_days)]), v_days);
    -- Check again under the locks: another transaction may have published the days.
    v_days := unpublished_days(v_days);
    PERFORM publish('today', v_days, p_actor, 'the day has come');
    RETURN v_days;
END $$;

-- Return the days that do not exist yet or are only DECLARED.
CREATE FUNCTION opendataflow.unpublished_days(p_days text[]) RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(SELECT d FROM unnest(p_days) AS d
                 WHERE coalesce((SELECT c.status FROM chunk c WHERE c.dataset = 'today' AND c.data_id = d), 'DECLARED') = 'DECLARED'
                 ORDER BY 1);
END $$;

-- Declare the days among p_ids that do not exist yet, so that people can hold them for all jobs before they begin. Locks level 0.
-- The caller has begun the event.
CREATE FUNCTION opendataflow.declare_days(p_ids text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_days text[] := ARRAY(SELECT DISTINCT i FROM unnest(p_ids) AS i WHERE is_day(i) AND NOT EXISTS (SELECT FROM chunk_of('today', i)) ORDER BY 1);
BEGIN
    IF cardinality(v_days) > 0 THEN
        PERFORM lock_reachable('{today}'), create_downstream_rows(array_fill('today'::text, ARRAY[cardinality(v_days)]), v_days);
    END IF;
END $$;

-- Create the tasks of a job that reads `today` for the days among p_ids that have none, so that people can skip or hold them before
-- they begin. No other job gets a task: a chunk of `today` would be one for all. Locks level 0. The caller has begun the event.
CREATE FUNCTION opendataflow.create_tasks_of_days(p_job text, p_ids text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM job_input i JOIN job j ON j.id = i.job WHERE i.job = p_job AND i.dataset = 'today' AND NOT j.deleted) THEN
        PERFORM lock_reachable('{today}');
        INSERT INTO task (job, data_id, state, blockers, sort_key)
        SELECT j.id, i, 'WAITING', 1, sort_key(i, j.descending)
        FROM (SELECT DISTINCT i FROM unnest(p_ids) AS i WHERE is_day(i)) d CROSS JOIN LATERAL (SELECT * FROM job j WHERE j.id = p_job OFFSET 0) j
        WHERE in_range(i, j.chunk_from, j.chunk_to) ORDER BY 2
        ON CONFLICT DO NOTHING;
    END IF;
END $$;

-- Return whether an id is a day of the calendar, such as 2026-12-25.
CREATE FUNCTION opendataflow.is_day(p_id text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN p_id ~ '^\d{4}-\d\d-\d\d$' AND make_date(left(p_id, 4)::integer, substr(p_id, 6, 2)::integer, right(p_id, 2)::integer) IS NOT NULL;
EXCEPTION WHEN datetime_field_overflow THEN
    RETURN false;
END $$;
