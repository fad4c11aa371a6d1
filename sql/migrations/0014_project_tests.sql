-- Which commit of a job's project has passed its unit tests, and which one has not.

CREATE TABLE opendataflow.project_test (
    job           text PRIMARY KEY,
    subject       text NOT NULL,
    passed        text,
    passed_by     bigint NOT NULL DEFAULT 0,
    failed        text,
    failed_by     bigint NOT NULL DEFAULT 0,
    failure       text,
    failing_since timestamptz,
    looks         integer NOT NULL DEFAULT 0 CHECK (looks >= 0),
    next_look_at  timestamptz,
    CONSTRAINT failed_says_how CHECK ((failed IS NULL) = (failure IS NULL)
                                      AND (failed IS NULL) = (failing_since IS NULL) AND (failed IS NULL) = (next_look_at IS NULL))
);

ALTER TABLE opendataflow.alert DROP CONSTRAINT alert_kind_check;
ALTER TABLE opendataflow.alert ADD CONSTRAINT alert_kind_check CHECK (kind IN ('failed', 'breaker', 'tests'));
