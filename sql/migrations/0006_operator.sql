-- Room for operators: whose custom resource a job or data set is, which operator leads, and which requests are done.

ALTER TABLE opendataflow.dataset
    ADD owner text CHECK (owner LIKE '_%/_%'),
    ADD share_with text[] NOT NULL DEFAULT '{}',
    ADD declared_as text;

ALTER TABLE opendataflow.job
    ADD owner text CHECK (owner LIKE '_%/_%'),
    ADD declared_as text;

COMMENT ON COLUMN opendataflow.dataset.owner IS 'namespace/name of its custom resource; null where a file or a command declared it';
COMMENT ON COLUMN opendataflow.dataset.declared_as IS 'what its resource said when it was applied last, as a hash';

CREATE TABLE opendataflow.leader (
    only_one  boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    identity  text NOT NULL DEFAULT left(md5(gen_random_uuid()::text), 12),
    lease     uuid,
    epoch     bigint NOT NULL DEFAULT 0,
    since     timestamptz
);
INSERT INTO opendataflow.leader DEFAULT VALUES;

CREATE TABLE opendataflow.request (
    owner   text PRIMARY KEY,
    id      text NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    answer  jsonb NOT NULL
);
