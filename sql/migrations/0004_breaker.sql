-- The breaker of a job: when its chunks fail one after the other, one probe at a time goes on.

-- A job whose chunks fail one after the other; no row where none does. `failed`: the chunks that failed with no success
-- between, with their last `runs`, since `since`; enough of them open the breaker. While it is open, `probe` is the run
-- that tries, `tried` the id that was tried last. `forgiven`: the chunks that got their attempts back when it last opened.
CREATE TABLE opendataflow.breaker (
    job            text PRIMARY KEY,
    failed         text[] NOT NULL DEFAULT '{}',
    runs           bigint[] NOT NULL DEFAULT '{}',
    since          timestamptz,
    message        text,
    forgiven       text[] NOT NULL DEFAULT '{}',
    opened_at      timestamptz,
    probes         integer NOT NULL DEFAULT 0 CHECK (probes >= 0),
    next_probe_at  timestamptz,
    probe          bigint,
    tried          text,
    CONSTRAINT failed_have_runs CHECK (cardinality(failed) = cardinality(runs)),
    CONSTRAINT failing_since CHECK ((cardinality(failed) = 0) = (since IS NULL)),
    CONSTRAINT open_breaker_probes CHECK ((opened_at IS NULL) = (next_probe_at IS NULL) AND (opened_at IS NULL) = (tried IS NULL)),
    CONSTRAINT closed_breaker_has_no_probe CHECK (opened_at IS NOT NULL OR (probe IS NULL AND probes = 0))
);
