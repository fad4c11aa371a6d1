-- The natural order of data ids, defined once for the whole program.

-- Return a key whose byte order is the natural order of ids: "1.2" before "1.10", dates in order.
-- Each sequence of digits becomes its length (four digits) and the digits without leading zeros.
-- The id follows, so that ids with equal keys ("1", "01") still have an order.
-- A table function, which the planner puts into the query of many ids: a call for each id would cost twice as much.
CREATE FUNCTION opendataflow.ascending_key(p_id text) RETURNS TABLE (key bytea)
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT convert_to(string_agg(
               CASE WHEN m.part[1] ~ '^[0-9]'
                    THEN lpad(length(ltrim(m.part[1], '0'))::text, 4, '0') || ltrim(m.part[1], '0')
                    ELSE m.part[1] END, '' ORDER BY m.place) || chr(1) || p_id, 'UTF8')
    FROM regexp_matches(p_id, '[0-9]+|[^0-9]+', 'g') WITH ORDINALITY AS m(part, place)
$$;

-- Return the same key for the order of a job.
-- For descending jobs all bytes are inverted, so that an ascending index scan returns descending ids.
CREATE FUNCTION opendataflow.sort_key(p_id text, p_descending boolean DEFAULT false) RETURNS bytea
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN p_descending
                THEN decode(translate(encode(k.key, 'hex'), '0123456789abcdef', 'fedcba9876543210'), 'hex')
                     || '\xff'::bytea
                ELSE k.key END
    FROM opendataflow.ascending_key(p_id) AS k
$$;

-- Return whether an id is in the range p_from..p_to. Both ends are included; null is no limit.
CREATE FUNCTION opendataflow.in_range(p_id text, p_from text, p_to text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (p_from IS NULL OR opendataflow.sort_key(p_id) >= opendataflow.sort_key(p_from))
       AND (p_to IS NULL OR opendataflow.sort_key(p_id) <= opendataflow.sort_key(p_to))
$$;
