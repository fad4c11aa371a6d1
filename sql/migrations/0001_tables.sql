-- The tables of OpenDataFlow: what users declared, and the state of every chunk, task and run.
-- Only the functions in sql/functions move a state; triggers refuse anything else and write the history.

CREATE SCHEMA opendataflow;

-- Grows with every claim and every publication; an older fence never commits. CACHE 1: sessions must not keep
-- blocks of numbers, or a later claim could get a smaller fence.
CREATE SEQUENCE opendataflow.fence AS bigint CACHE 1;

CREATE TABLE opendataflow.migration (
    number      integer PRIMARY KEY,
    name        text NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT now()
);

-- One row: the digest of the functions and views that are installed.
CREATE TABLE opendataflow.installed (
    one_row     boolean PRIMARY KEY DEFAULT true CHECK (one_row),
    functions   text NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT now()
);

-- What users declared -------------------------------------------------------------------------------------

CREATE TABLE opendataflow.dataset (
    id            text PRIMARY KEY CHECK (id <> ''),
    kind          text,
    hostname      text,
    database      text,
    schemaname    text,
    tablename     text,
    username      text,
    encryptedpass text,
    url           text,
    format        text,
    options       jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(options) = 'object'),
    secret_ref    jsonb,
    partitioning  jsonb,
    modified      timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE opendataflow.job (
    id                     text PRIMARY KEY CHECK (id <> ''),
    parallelism            integer NOT NULL DEFAULT 1 CHECK (parallelism >= 0),
    priority               integer NOT NULL DEFAULT 0,
    suspended              boolean NOT NULL DEFAULT false,
    deleted                boolean NOT NULL DEFAULT false,
    descending             boolean NOT NULL DEFAULT false,
    chunk_from             text,
    chunk_to               text,
    retry_limit            integer NOT NULL DEFAULT 2 CHECK (retry_limit >= 0),
    infrastructure_limit   integer NOT NULL DEFAULT 5 CHECK (infrastructure_limit >= 0),
    backoff_initial        double precision NOT NULL DEFAULT 10 CHECK (backoff_initial >= 0),
    backoff_factor         double precision NOT NULL DEFAULT 2 CHECK (backoff_factor >= 1),
    backoff_maximum        double precision NOT NULL DEFAULT 600 CHECK (backoff_maximum >= 0),
    run_deadline           double precision CHECK (run_deadline > 0),
    modified               timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE opendataflow.job_input (
    job      text NOT NULL REFERENCES opendataflow.job,
    dataset  text NOT NULL REFERENCES opendataflow.dataset,
    PRIMARY KEY (job, dataset)
);
CREATE INDEX job_input_dataset ON opendataflow.job_input (dataset);

CREATE TABLE opendataflow.job_output (
    job      text NOT NULL REFERENCES opendataflow.job,
    dataset  text NOT NULL REFERENCES opendataflow.dataset,
    PRIMARY KEY (job, dataset),
    CONSTRAINT one_producer UNIQUE (dataset)
);

CREATE TABLE opendataflow.job_env (
    job    text NOT NULL REFERENCES opendataflow.job,
    name   text NOT NULL,
    value  text NOT NULL,
    PRIMARY KEY (job, name)
);

-- State ---------------------------------------------------------------------------------------------------

-- One partition of a data set. `fence` is its version; `run` the run that made or is making it, null where it
-- came from outside; `readers` the running consumers; `held_status` what a HOLD returns to.
CREATE TABLE opendataflow.chunk (
    dataset       text NOT NULL REFERENCES opendataflow.dataset,
    data_id       text NOT NULL CHECK (data_id <> ''),
    status        text NOT NULL DEFAULT 'DECLARED'
                  CHECK (status IN ('DECLARED', 'READY', 'RUNNING', 'FAILED', 'RESUBMIT', 'HOLD', 'PENDING')),
    held_status   text CHECK (held_status IN ('DECLARED', 'READY', 'FAILED', 'RESUBMIT', 'PENDING')),
    bounds        jsonb,
    fence         bigint,
    run           bigint,
    readers       integer NOT NULL DEFAULT 0 CHECK (readers >= 0),
    rows          bigint,
    bytes         bigint,
    checksum      text,
    published_at  timestamptz,
    reason        text,
    PRIMARY KEY (dataset, data_id),
    CONSTRAINT held_remembers CHECK ((status = 'HOLD') = (held_status IS NOT NULL)),
    CONSTRAINT running_has_run CHECK (status <> 'RUNNING' OR (run IS NOT NULL AND fence IS NOT NULL)),
    CONSTRAINT ready_has_version CHECK (status <> 'READY' OR (fence IS NOT NULL AND published_at IS NOT NULL))
) WITH (fillfactor = 80);

-- What one job has to do for one data id. `blockers` counts the rows of the view `blocker`; `rank` is 0 forced,
-- 1 resubmitted, 2 natural; `sort_key` sorts ascending also for jobs that go downwards; `run` is the last run;
-- `forced` lasts until a run succeeds or its retries are used up.
CREATE TABLE opendataflow.task (
    job                      text NOT NULL REFERENCES opendataflow.job,
    data_id                  text NOT NULL,
    state                    text NOT NULL
                             CHECK (state IN ('WAITING', 'QUEUED', 'RUNNING', 'RETRYING', 'DONE', 'FAILED', 'HELD', 'SKIPPED')),
    held_from                text CHECK (held_from IN ('WAITING', 'QUEUED', 'RETRYING', 'FAILED', 'DONE')),
    rank                     smallint NOT NULL DEFAULT 2 CHECK (rank BETWEEN 0 AND 2),
    sort_key                 bytea NOT NULL,
    blockers                 integer NOT NULL DEFAULT 0 CHECK (blockers >= 0),
    attempts                 integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    infrastructure_attempts  integer NOT NULL DEFAULT 0 CHECK (infrastructure_attempts >= 0),
    due_at                   timestamptz,
    fence                    bigint,
    run                      bigint,
    reason                   text,
    forced                   boolean NOT NULL DEFAULT false,
    again                    boolean NOT NULL DEFAULT false,
    stale                    boolean NOT NULL DEFAULT false,
    PRIMARY KEY (job, data_id),
    CONSTRAINT queued_is_unblocked CHECK (state <> 'QUEUED' OR blockers = 0),
    CONSTRAINT waiting_is_blocked CHECK (state <> 'WAITING' OR blockers > 0),
    CONSTRAINT only_open_task_counts CHECK (state IN ('WAITING', 'QUEUED', 'RETRYING') OR blockers = 0),
    CONSTRAINT retrying_has_due CHECK (state <> 'RETRYING' OR due_at IS NOT NULL),
    CONSTRAINT running_task_has_run CHECK (state <> 'RUNNING' OR (run IS NOT NULL AND fence IS NOT NULL)),
    CONSTRAINT held_task_remembers CHECK ((state IN ('HELD', 'SKIPPED')) = (held_from IS NOT NULL)),
    CONSTRAINT again_is_remembered CHECK (NOT again OR state IN ('RUNNING', 'HELD', 'SKIPPED')),
    CONSTRAINT forced_is_to_do CHECK (NOT forced OR state NOT IN ('DONE', 'FAILED'))
) WITH (fillfactor = 80);
CREATE INDEX task_queued ON opendataflow.task (job, rank, sort_key) WHERE state = 'QUEUED';
CREATE INDEX task_running ON opendataflow.task (job) WHERE state = 'RUNNING';
CREATE INDEX task_due ON opendataflow.task (due_at) WHERE state = 'RETRYING';
CREATE INDEX task_state ON opendataflow.task (job, state, sort_key);

-- A live process that may claim. Its end on the database's clock stops its claims; what it runs goes on.
CREATE TABLE opendataflow.lease (
    id          uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    kind        text NOT NULL CHECK (kind IN ('local', 'operator')),
    host        text NOT NULL,
    boot        text NOT NULL,
    runs_home   text NOT NULL,
    expires_at  timestamptz NOT NULL,
    epoch       bigint NOT NULL DEFAULT 0,
    opened_at   timestamptz NOT NULL DEFAULT now()
);

-- One attempt at one claim. What it locked is recorded here and released from here: `reads` with the versions
-- that it used, `writes`. `lease`, `host`, `boot` and `runs_home` say whose it is, also when the lease is gone.
-- A `forced` run read-locks only inputs that were READY; its row is never cleaned. `cancel_requested`: a person asks for
-- its end; its engine sees that within a second or two.
CREATE TABLE opendataflow.run (
    id             bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
    job            text NOT NULL,
    data_id        text NOT NULL,
    state          text NOT NULL DEFAULT 'RUNNING'
                   CHECK (state IN ('RUNNING', 'SUCCEEDED', 'FAILED', 'LOST', 'CANCELLED')),
    attempt        integer NOT NULL CHECK (attempt > 0),
    fence          bigint NOT NULL UNIQUE,
    lease          uuid NOT NULL,
    host           text NOT NULL,
    boot           text NOT NULL,
    runs_home      text NOT NULL,
    reads          text[] NOT NULL,
    read_fences    bigint[] NOT NULL,
    writes         text[] NOT NULL,
    forced         boolean NOT NULL DEFAULT false,
    claimed_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    cancel_requested boolean NOT NULL DEFAULT false,
    finished_at    timestamptz,
    failure_class  text,
    exit_code      integer,
    message        text,
    log_tail       text CHECK (octet_length(log_tail) <= 262144),
    log_path       text,
    pod_name       text,
    pod_uid        text,
    node           text,
    answers        jsonb,
    metrics        jsonb,
    CONSTRAINT ended_has_time CHECK ((state = 'RUNNING') = (finished_at IS NULL)),
    CONSTRAINT reads_have_versions CHECK (cardinality(reads) = cardinality(read_fences))
);
CREATE UNIQUE INDEX run_one_at_a_time ON opendataflow.run (job, data_id) WHERE state = 'RUNNING';
CREATE INDEX run_of_task ON opendataflow.run (job, data_id, id);
CREATE INDEX run_running ON opendataflow.run (lease) WHERE state = 'RUNNING';
CREATE INDEX run_finished ON opendataflow.run (job, finished_at);

-- One transformation of a run.
CREATE TABLE opendataflow.step (
    run      bigint NOT NULL REFERENCES opendataflow.run,
    ordinal  integer NOT NULL,
    name     text NOT NULL,
    status   text NOT NULL,
    stdout   text,
    error    text,
    rows     bigint,
    seconds  double precision,
    PRIMARY KEY (run, ordinal)
);

-- Every change of a state, who asked for it and why. Rows are added, never changed.
CREATE TABLE opendataflow.history (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind        text NOT NULL CHECK (kind IN ('chunk', 'task')),
    owner       text NOT NULL,
    data_id     text NOT NULL,
    event       text NOT NULL,
    from_state  text NOT NULL,
    to_state    text NOT NULL,
    run         bigint,
    fence       bigint,
    actor       text NOT NULL,
    reason      text
);
CREATE INDEX history_of ON opendataflow.history (kind, owner, data_id, id);
COMMENT ON COLUMN opendataflow.history.owner IS 'the data set of a chunk, the job of a task';
