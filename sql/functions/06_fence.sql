-- Fencing tokens: later claims and publications have greater ones, also after the database has gone back in time.

-- Return the next fencing token: the greatest of the last one plus 1, the microseconds since 1970, and p_least.
-- A restored database, or a replica that lacks the last commits, has forgotten tokens. They are smaller than the clock.
-- The advisory lock keeps other sessions from writing the sequence between the reading and the writing here.
-- The lock belongs to the session, because a lock until the end of the transaction would let claims wait for each other.
-- So nothing may fail before the unlocking: one list of expressions does it all, and the function runs with the rights of
-- its owner, because a role without a right to the sequence would keep the lock.
CREATE FUNCTION opendataflow.next_fence(p_least bigint DEFAULT 0) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog AS $$
    SELECT f.fence
    FROM (SELECT pg_advisory_lock(20135, 0),
                 setval('opendataflow.fence', greatest(nextval('opendataflow.fence'), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, p_least)) AS fence,
                 pg_advisory_unlock(20135, 0)
          OFFSET 0) f
$$;
