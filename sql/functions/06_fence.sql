-- Fencing tokens: later claims and publications have greater ones, also after the database has gone back in time.

-- Return the next fencing token: the greater of the last one plus 1, and the microseconds since 1970.
-- A restored database, or a replica that lacks the last commits, has forgotten tokens. They are smaller than the clock.
-- The advisory lock keeps other sessions from writing the sequence between the reading and the writing here.
-- One list of expressions does it all, so that no cancellation can come before the unlocking. The transaction has
-- written rows before, so that no right to write is missing.
CREATE FUNCTION opendataflow.next_fence() RETURNS bigint
LANGUAGE sql AS $$
    SELECT f.fence
    FROM (SELECT pg_advisory_lock(20134, 0),
                 setval('opendataflow.fence', greatest(nextval('opendataflow.fence'), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)) AS fence,
                 pg_advisory_unlock(20134, 0)
          OFFSET 0) f
$$;
