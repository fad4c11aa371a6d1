-- `today`, the data set that is built in: its chunks are days, READY from the day itself on. Jobs may read it; nobody
-- declares it, and no run holds a lock on it: whatever number of jobs may take the same day at the same moment.

-- Refuses `today` as a data set of somebody's own, or as what a job makes.
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

-- A job that reads `today` begins with the day on which it is applied first (`first_day` of its row, else that of this
-- server), unless its file says from where. Returns p_jobs with that.
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

-- Publishes the current day, p_today, for those of the jobs that read `today`; with p_catch_up also the days before it
-- that nobody has published, back to the first day that one of the jobs has a task for. What is there already stays as it
-- is. Returns the days that were published.
CREATE FUNCTION opendataflow.publish_today(p_jobs text[], p_today text, p_catch_up boolean, p_actor text) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    v_days text[];
BEGIN
    SELECT array_agg(DISTINCT to_char(d, 'YYYY-MM-DD')) INTO v_days
    FROM unnest(p_jobs) AS n(job)
    JOIN job_input i ON i.job = n.job AND i.dataset = 'today'
    JOIN job j ON j.id = n.job AND NOT j.deleted
    CROSS JOIN LATERAL (SELECT min(w.data_id) AS day FROM task w
                        WHERE p_catch_up AND w.job = n.job AND w.data_id ~ '^\d{4}-\d\d-\d\d$' AND w.data_id < p_today) first
    CROSS JOIN LATERAL generate_series(coalesce(first.day, p_today)::timestamp, p_today::timestamp, '1 day') AS d;
    v_days := unpublished_days(v_days);
    IF cardinality(v_days) = 0 THEN
        RETURN '{}';
    END IF;
    PERFORM begin_event('publish', p_actor), lock_reachable('{today}'),
            create_downstream_rows(array_fill('today'::text, ARRAY[cardinality(v_days)]), v_days),
            lock_chunks(array_fill('today'::text, ARRAY[cardinality(v_days)]), v_days);
    -- Again under the locks: whoever came first has published them.
    v_days := unpublished_days(v_days);
    PERFORM publish('today', v_days, p_actor, 'the day has come');
    RETURN v_days;
END $$;

-- Those of the days that are not there yet, or are only declared.
CREATE FUNCTION opendataflow.unpublished_days(p_days text[]) RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(SELECT d FROM unnest(p_days) AS d
                 WHERE coalesce((SELECT c.status FROM chunk c WHERE c.dataset = 'today' AND c.data_id = d), 'DECLARED') = 'DECLARED'
                 ORDER BY 1);
END $$;
