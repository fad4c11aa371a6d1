-- The tables of OpenDataFlow: what users declared, and the state of every chunk, task and run.
-- Only the functions in sql/functions move a state; triggers refuse anything else and write the history.
-- This is the base, migration 1: every database is made by it. It may be edited until the first release, which refuses
-- databases that were made before; from then on tables change by the files of sql/migrations only.

CREATE SCHEMA opendataflow;

-- Grows with every claim and every publication; an older fence never commits. CACHE 1: sessions must not keep
-- blocks of numbers, or a later claim could get a smaller fence.
CREATE SEQUENCE opendataflow.fence AS bigint CACHE 1;

-- The migrations that were applied. `works_from`: the oldest program, by its last migration, that can work with the tables
-- after this one; `digest`: of the statements that were run, which tells a database that an unreleased version has made.
CREATE TABLE opendataflow.migration (
    number      integer PRIMARY KEY,
    name        text NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT now(),
    works_from  integer NOT NULL,
    digest      text NOT NULL
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
    modified      timestamptz NOT NULL DEFAULT now(),
    owner         text CHECK (owner LIKE '_%/_%'),
    share_with    text[] NOT NULL DEFAULT '{}',
    declared_as   text
);
COMMENT ON COLUMN opendataflow.dataset.owner IS 'namespace/name of its custom resource; null where a file or a command declared it';
COMMENT ON COLUMN opendataflow.dataset.declared_as IS 'what its resource said when it was applied last, as a hash';

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
    modified               timestamptz NOT NULL DEFAULT now(),
    declaration            bigint,
    owner                  text CHECK (owner LIKE '_%/_%'),
    declared_as            text,
    cancel_on_delete       boolean NOT NULL DEFAULT false,
    pipeline               text
);
COMMENT ON COLUMN opendataflow.job.pipeline IS 'the slug of the pipeline that it runs; null where it runs something else';

-- The data sets of a job as its runs have seen them, without passwords: where the data was expected, also when a data set
-- has been applied with another location since. `job.declaration` is the newest, null where something has changed since
-- the last claim; `run.declaration` the one that a run has seen. Rows are added, never changed.
CREATE TABLE opendataflow.declaration (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job       text NOT NULL,
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    datasets  jsonb NOT NULL
);
CREATE INDEX declaration_of ON opendataflow.declaration (job, id);

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
-- came from outside, and `publisher` who was named then; `readers` the running consumers; `held_status` what a HOLD
-- returns to.
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
    publisher     text,
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
CREATE INDEX task_stale ON opendataflow.task (job) WHERE stale;
CREATE INDEX task_due ON opendataflow.task (due_at) WHERE state = 'RETRYING';
CREATE INDEX task_state ON opendataflow.task (job, state, sort_key);
-- The youngest index: while the table is small it costs as much as the others to the planner, which then takes the youngest,
-- and sessions keep that plan when the table is large.
ALTER TABLE opendataflow.task ADD PRIMARY KEY (job, data_id);

-- How many tasks of a job are in each state: the sum of all its rows. Every statement that changes tasks adds a row for
-- each state that it changes (one row that all of them changed would let them wait for each other); compact_counts() adds
-- rows up now and then.
CREATE TABLE opendataflow.task_count (
    job    text NOT NULL,
    state  text NOT NULL,
    tasks  bigint NOT NULL
);
CREATE INDEX task_count_of ON opendataflow.task_count (job);

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

-- Which operator leads: the one with this lease, until the lease has ended and another one takes over, which raises the
-- epoch. One row. `identity`: tells the pods of this database's runs from those of others in the same cluster.
-- `namespaces`: the only ones that it works in; empty for all.
CREATE TABLE opendataflow.leader (
    only_one  boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    identity  text NOT NULL DEFAULT left(md5(gen_random_uuid()::text), 12),
    lease     uuid,
    epoch     bigint NOT NULL DEFAULT 0,
    since     timestamptz,
    namespaces text[] NOT NULL DEFAULT '{}'
);
INSERT INTO opendataflow.leader DEFAULT VALUES;

-- The last request of a resource that was done, so that it is done once: `owner` is "job ID" for spec.resubmit (`id` as
-- written there), "action UID" for a DataFlowAction. `answer`: what its status says.
CREATE TABLE opendataflow.request (
    owner   text PRIMARY KEY,
    id      text NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    answer  jsonb NOT NULL
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
    pod_uid        text,
    node           text,
    metrics        jsonb,
    declaration    bigint,
    CONSTRAINT ended_has_time CHECK ((state = 'RUNNING') = (finished_at IS NULL)),
    CONSTRAINT reads_have_versions CHECK (cardinality(reads) = cardinality(read_fences))
);
CREATE UNIQUE INDEX run_one_at_a_time ON opendataflow.run (job, data_id) WHERE state = 'RUNNING';
CREATE INDEX run_of_task ON opendataflow.run (job, data_id, id);
CREATE INDEX run_running ON opendataflow.run (lease) WHERE state = 'RUNNING';
CREATE INDEX run_finished ON opendataflow.run (job, finished_at);
CREATE INDEX run_failed ON opendataflow.run (job, finished_at) WHERE state IN ('FAILED', 'LOST');

-- One step of a pipeline in a run that has ended: reading a source, a transformation, the write. Some ordinals may be
-- missing, where a report had no place for them. `error`: a sentence, and the traceback below it; `stdout`: the end of what
-- was printed. From a pod neither traceback nor `stdout` are told: they are in its log.
CREATE TABLE opendataflow.step (
    run      bigint NOT NULL REFERENCES opendataflow.run,
    ordinal  integer NOT NULL,
    name     text NOT NULL,
    status   text NOT NULL,
    stdout   text,
    error    text,
    rows     bigint,
    seconds  double precision,
    PRIMARY KEY (run, ordinal),
    CONSTRAINT step_from_one CHECK (ordinal > 0),
    CONSTRAINT step_has_ended CHECK (status IN ('DONE', 'FAILED', 'SKIPPED')),
    CONSTRAINT step_is_short CHECK (octet_length(name) <= 1024 AND octet_length(stdout) <= 65536 AND octet_length(error) <= 65536),
    CONSTRAINT step_counts CHECK (rows >= 0 AND seconds >= 0)
);

-- Every change of a state, and of a job's limits, who asked for it and why. Rows are added, never changed.
CREATE TABLE opendataflow.history (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind        text NOT NULL CONSTRAINT history_kind CHECK (kind IN ('chunk', 'task', 'job')),
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
COMMENT ON COLUMN opendataflow.history.owner IS 'the data set of a chunk, the job of a task, the job itself (whose data id is empty)';

-- The rows that a statement on a view of schema dataflow is about, until its end: never committed.
CREATE UNLOGGED TABLE opendataflow.view_row (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    view     text NOT NULL,
    content  jsonb NOT NULL
);

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

-- What each target of notifications was told last about each kind of trouble of a job: that it is `failing`, or that it
-- is well; null: nothing yet. `claimed_until`: an engine is telling it; one that crashes meanwhile leaves it to the next.
CREATE TABLE opendataflow.alert (
    target         text NOT NULL,
    job            text NOT NULL,
    kind           text NOT NULL CHECK (kind IN ('failed', 'breaker', 'tests')),
    failing        boolean,
    told_at        timestamptz,
    claimed_until  timestamptz,
    PRIMARY KEY (target, job, kind),
    CONSTRAINT told_has_time CHECK ((failing IS NULL) = (told_at IS NULL))
);

-- What is known of the unit tests of a job's project, where the job wants them to pass first; no row for others. `subject`
-- tells this project and pipeline from those that the job had before. `passed`: the newest commit whose tests have passed
-- (for what is no repository, a digest), which may be used; `failed`: a newer one whose tests have failed, and `failure` how.
-- Each with the run that says so. While there is a failed one and none that may be used, one run at a time looks whether the
-- project has changed, after `next_look_at`; `looks` counts those in vain.
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
