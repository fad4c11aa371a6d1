-- Load of many chunks of one data set from a list of ids.

-- Return the chunks of a list that are new, or get other bounds, and whose bounds overlap those of another chunk: {overlapping, examples}.
-- Reads all chunks of the data set. Locks level 0 exclusively, so that nobody adds a chunk between this look and the load.
-- Null if nothing says which rows the chunks of the list have. Raises DF001 while the data set is being declared: its other chunks are not there yet.
CREATE FUNCTION opendataflow.overlaps_of_list(p_dataset text, p_ids text[], p_bounds jsonb[]) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    v_partitionings jsonb := partitionings(ARRAY[p_dataset]);
BEGIN
    IF v_partitionings = '{}' AND p_bounds = array_fill(NULL::jsonb, ARRAY[cardinality(p_bounds)]) THEN
        RETURN NULL;
    END IF;
    PERFORM lock_datasets(reachable_datasets(ARRAY[p_dataset]), true);
    IF EXISTS (SELECT FROM declaring n WHERE n.kind = 'dataset' AND n.id = p_dataset) THEN
        RAISE EXCEPTION 'the chunks of data set % are being declared, so the list can''t be compared with them: load it when dataflow describe dataset % shows no declaration',
            p_dataset, p_dataset USING ERRCODE = 'DF001';
    END IF;
    RETURN (
        SELECT jsonb_build_object('overlapping', count(*), 'examples', jsonb_build_object('overlapping', some_ids(coalesce(array_agg(o.data_id), '{}'))))
        FROM (SELECT coalesce(array_agg(m.data_id), '{}') AS ids, coalesce(array_agg(m.bounds), '{}') AS bounds
              FROM meanings(array_fill(p_dataset, ARRAY[cardinality(p_ids)]), p_ids, p_bounds, v_partitionings) m
              WHERE m.is_other OR (m.returns AND NOT is_finished(p_dataset, m.data_id))) n
        CROSS JOIN overlapping_chunks(array_fill(p_dataset, ARRAY[cardinality(n.ids)]), n.ids, n.bounds, '{}', '{}', v_partitionings) o);
END $$;

-- Declare chunks with their bounds (null for none), and publish them if p_publish is true.
-- Return {new, known, published, refused: [message]}. If a chunk is refused, the caller rolls back.
-- Locks levels 0, 3, 4. Raises DF002 if the data set is unknown.
CREATE FUNCTION opendataflow.load_chunks(p_dataset text, p_ids text[], p_bounds jsonb[], p_publish boolean, p_actor text,
                                         p_reason text DEFAULT NULL) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    v_known   bigint;
    v_done    bigint;
    v_refused jsonb;
BEGIN
    PERFORM begin_event('declare', p_actor, p_reason), require_dataset(p_dataset), lock_reachable(ARRAY[p_dataset]);
    SELECT count(*) INTO v_known
    FROM unnest(p_ids) AS i, chunk_of(p_dataset, i);
    IF p_publish THEN
        SELECT count(*) FILTER (WHERE p.result = 'done'),
               coalesce(jsonb_agg(p.message ORDER BY p.data_id) FILTER (WHERE p.result <> 'done'), '[]')
        INTO v_done, v_refused FROM publish(p_dataset, p_ids, p_actor, p_reason) p;
        PERFORM set_chunk_bounds(p_dataset, p_ids, p_bounds);
    ELSE
        PERFORM declare_chunks(p_dataset, p_ids, p_bounds, p_actor);
    END IF;
    RETURN jsonb_build_object('new', cardinality(p_ids) - v_known, 'known', v_known,
                              'published', coalesce(v_done, 0), 'refused', coalesce(v_refused, '[]'));
END $$;
