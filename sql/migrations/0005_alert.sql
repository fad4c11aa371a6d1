-- What targets of notifications have been told.

-- What each target of notifications was told last about each kind of trouble of a job: that it is `failing`, or that it
-- is well; null: nothing yet. `claimed_until`: an engine is telling it; one that crashes meanwhile leaves it to the next.
CREATE TABLE opendataflow.alert (
    target         text NOT NULL,
    job            text NOT NULL,
    kind           text NOT NULL CHECK (kind IN ('failed', 'breaker')),
    failing        boolean,
    told_at        timestamptz,
    claimed_until  timestamptz,
    PRIMARY KEY (target, job, kind),
    CONSTRAINT told_has_time CHECK ((failing IS NULL) = (told_at IS NULL))
);
