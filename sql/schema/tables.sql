-- Tables of OpenDataFlow: what users declare, and the state of each chunk, task and run.
-- Only the functions in sql/functions change a state. Triggers refuse every other change and write the history.
-- This file is the base, migration 1. Every database starts with the base.
-- The base may change until the first release. The first release refuses databases of earlier versions.
-- After the first release, tables change only through the files in sql/migrations.

-- An administrator may have created it for a role that may create no schemas.
DO $$ BEGIN
    IF to_regnamespace('opendataflow') IS NULL THEN
        CREATE SCHEMA opendataflow;
    END IF;
END $$;

-- Fencing tokens. The value grows with each claim and each publication, and an older token never commits.
-- CACHE 1 is required: a session with a block of cached numbers could give a later claim a smaller token.
CREATE SEQUENCE opendataflow.fence AS bigint CACHE 1;

-- Applied migrations.
-- `works_from`: the last migration of the oldest program that can use the tables after this migration.
-- `digest`: the digest of the statements that ran. An unknown digest marks a database of an unreleased version.
CREATE TABLE opendataflow.migration (
    number      integer PRIMARY KEY,
    name        text NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT now(),
    works_from  integer NOT NULL,
    digest      text NOT NULL
);

-- One row: the digest of the installed functions and views.
-- `moved_to`: the address of the database that has replaced this one, without a password; null if none has.
CREATE TABLE opendataflow.installed (
    one_row     boolean PRIMARY KEY DEFAULT true CHECK (one_row),
    functions   text NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT now(),
    moved_to    text,
    moved_at    timestamptz,
    CONSTRAINT moved_has_time CHECK ((moved_to IS NULL) = (moved_at IS NULL))
);

-- Declarations -------------------------------------------------------------------------------------------

-- `id`, in both tables: the key. It is `namespace/id` for what a resource has declared, and the id alone for files.
CREATE TABLE opendataflow.dataset (
    id            text PRIMARY KEY CONSTRAINT dataset_key CHECK (id ~ '^([^/]+/)?[^/]+$'),
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
    declared_as   text,
    source_chunks bigint CHECK (source_chunks >= 0),
    CONSTRAINT dataset_of_namespace CHECK (starts_with(id, split_part(owner, '/', 1) || '/'))
);
COMMENT ON COLUMN opendataflow.dataset.source_chunks IS 'how many chunks its chunk source has, also those that are not written yet; null if no source was declared';
COMMENT ON COLUMN opendataflow.dataset.owner IS 'namespace/name of the custom resource; null if a file or a command declared the data set';
COMMENT ON COLUMN opendataflow.dataset.declared_as IS 'hash of the resource at the last apply';

CREATE TABLE opendataflow.job (
    id                     text PRIMARY KEY CONSTRAINT job_key CHECK (id ~ '^([^/]+/)?[^/]+$'),
    parallelism            integer NOT NULL DEFAULT 1 CHECK (parallelism >= 0),
    priority               integer NOT NULL DEFAULT 0 CHECK (priority BETWEEN -1000 AND 1000),
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
    pipeline               text,
    CONSTRAINT job_of_namespace CHECK (starts_with(id, split_part(owner, '/', 1) || '/'))
);
COMMENT ON COLUMN opendataflow.job.pipeline IS 'slug of the pipeline; null if the job runs no pipeline';

-- The data sets of a job as its runs saw them, without passwords.
-- Each row records where data was expected, even if a data set later moves to another location.
-- `job.declaration` is the newest row; null if something has changed since the last claim.
-- `run.declaration` is the row that one run used. Rows are added and never changed.
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

-- Declarations that are committed, and whose chunks or tasks are still being written. See sql/functions/45_declaring.sql.
-- A `dataset` writes the chunks of its chunk source in their order. `source`: the chunk source, as in the resource.
-- A `job` writes its tasks for chunks that existed before it, by (data set, id): `after_dataset`, `after_id` is the last one.
-- `declared` of `total` chunks are written. `batch`: how many chunks the next transaction writes.
CREATE TABLE opendataflow.declaring (
    kind           text NOT NULL CHECK (kind IN ('dataset', 'job')),
    id             text NOT NULL,
    source         jsonb,
    after_dataset  text NOT NULL DEFAULT '',
    after_id       text NOT NULL DEFAULT '',
    declared       bigint NOT NULL DEFAULT 0,
    total          bigint NOT NULL,
    batch          integer NOT NULL CHECK (batch > 0),
    actor          text NOT NULL,
    since          timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (kind, id),
    CONSTRAINT declaring_is_partial CHECK (declared BETWEEN 0 AND total),
    CONSTRAINT dataset_has_source CHECK ((kind = 'dataset') = (source IS NOT NULL))
);

-- State ---------------------------------------------------------------------------------------------------

-- One chunk (partition) of a data set. `fence`: the version.
-- `run`: the run that wrote the chunk or is writing it; null if the chunk was published from outside.
-- `publisher`: the name that was given when the chunk was published from outside.
-- `readers`: the number of running consumers.
-- `held_status`: the status that a release restores.
-- `in_source`: the chunk source of the data set has the id. `by_hand`: a person has loaded, declared or published it.
-- `retired_from`: the status that the chunk gets back if its id returns.
-- A RUNNING chunk with `retired_from` is retired when its run ends.
CREATE TABLE opendataflow.chunk (
    dataset       text NOT NULL REFERENCES opendataflow.dataset,
    data_id       text NOT NULL CONSTRAINT chunk_has_id CHECK (char_length(data_id) BETWEEN 1 AND 253 AND btrim(data_id) = data_id),
    status        text NOT NULL DEFAULT 'DECLARED'
                  CHECK (status IN ('DECLARED', 'READY', 'RUNNING', 'FAILED', 'RESUBMIT', 'HOLD', 'PENDING', 'RETIRED')),
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
    in_source     boolean NOT NULL DEFAULT false,
    by_hand       boolean NOT NULL DEFAULT false,
    retired_from  text CHECK (retired_from IN ('DECLARED', 'READY', 'RUNNING', 'FAILED', 'RESUBMIT', 'HOLD', 'PENDING')),
    PRIMARY KEY (dataset, data_id),
    CONSTRAINT held_remembers CHECK ((status = 'HOLD' OR (status = 'RETIRED' AND retired_from = 'HOLD')) = (held_status IS NOT NULL)),
    CONSTRAINT retired_remembers CHECK (CASE status WHEN 'RETIRED' THEN retired_from IS NOT NULL AND retired_from <> 'RUNNING'
                                                    WHEN 'RUNNING' THEN retired_from IS NULL OR retired_from = 'RUNNING'
                                                    ELSE retired_from IS NULL END),
    CONSTRAINT running_has_run CHECK (status <> 'RUNNING' OR (run IS NOT NULL AND fence IS NOT NULL)),
    CONSTRAINT ready_has_version CHECK (status <> 'READY' OR (fence IS NOT NULL AND published_at IS NOT NULL))
) WITH (fillfactor = 80);
-- An index over `status` would cost each change of a status a new index entry (no HOT update).
CREATE INDEX chunk_retired ON opendataflow.chunk (dataset, data_id) WHERE retired_from IS NOT NULL;

-- One job's processing of one data id. `blockers`: the number of rows in the view `blocker`.
-- `rank`: 0 forced, 1 resubmitted, 2 natural order, 3 a look at a location that was missing. `sort_key`: sorts ascending, also for descending jobs.
-- `run`: the last run. `forced`: true until a run succeeds or its retries are used up.
-- `incomplete`: the task is DONE, but one of its outputs was never made.
-- `stale`: a DONE task was made from an older version of an input or of its job; a RUNNING one will be at its end.
-- `bounds_changed`: the task is stale because bounds have changed, so that no change of its job's inputs makes it fresh again.
-- `retired_from`: the state that the task gets back if its id returns.
-- `looks`: how many runs in a row did not start because the location of this chunk was missing.
CREATE TABLE opendataflow.task (
    job                      text NOT NULL REFERENCES opendataflow.job,
    data_id                  text NOT NULL,
    state                    text NOT NULL
                             CHECK (state IN ('WAITING', 'QUEUED', 'RUNNING', 'RETRYING', 'DONE', 'FAILED', 'HELD', 'SKIPPED', 'RETIRED')),
    held_from                text CHECK (held_from IN ('WAITING', 'QUEUED', 'RETRYING', 'FAILED', 'DONE')),
    rank                     smallint NOT NULL DEFAULT 2 CHECK (rank BETWEEN 0 AND 3),
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
    bounds_changed           boolean NOT NULL DEFAULT false,
    incomplete               boolean NOT NULL DEFAULT false,
    retired_from             text CHECK (retired_from IN ('DONE', 'HELD', 'SKIPPED')),
    looks                    integer NOT NULL DEFAULT 0 CHECK (looks >= 0),
    CONSTRAINT queued_is_unblocked CHECK (state <> 'QUEUED' OR blockers = 0),
    CONSTRAINT waiting_is_blocked CHECK (state <> 'WAITING' OR blockers > 0),
    CONSTRAINT only_open_task_counts CHECK (state IN ('WAITING', 'QUEUED', 'RETRYING') OR blockers = 0),
    CONSTRAINT retrying_has_due CHECK (state <> 'RETRYING' OR due_at IS NOT NULL),
    CONSTRAINT running_task_has_run CHECK (state <> 'RUNNING' OR (run IS NOT NULL AND fence IS NOT NULL)),
    CONSTRAINT held_task_remembers CHECK ((coalesce(retired_from, state) IN ('HELD', 'SKIPPED')) = (held_from IS NOT NULL)),
    CONSTRAINT again_is_remembered CHECK (NOT again OR coalesce(retired_from, state) IN ('RUNNING', 'HELD', 'SKIPPED')),
    CONSTRAINT retired_task_remembers CHECK ((state = 'RETIRED') = (retired_from IS NOT NULL)),
    CONSTRAINT only_done_is_incomplete CHECK (NOT incomplete OR coalesce(retired_from, state) = 'DONE'),
    CONSTRAINT only_stale_has_changed_bounds CHECK (NOT bounds_changed OR stale),
    CONSTRAINT forced_is_to_do CHECK (NOT forced OR state NOT IN ('DONE', 'FAILED'))
) WITH (fillfactor = 80);
CREATE INDEX task_queued ON opendataflow.task (job, rank, sort_key) WHERE state = 'QUEUED';
CREATE INDEX task_running ON opendataflow.task (job) WHERE state = 'RUNNING';
CREATE INDEX task_stale ON opendataflow.task (job) WHERE stale;
CREATE INDEX task_incomplete ON opendataflow.task (job, sort_key) WHERE incomplete;
CREATE INDEX task_looked_at ON opendataflow.task (job) WHERE looks > 0;
CREATE INDEX task_due ON opendataflow.task (due_at) WHERE state = 'RETRYING';
CREATE INDEX task_state ON opendataflow.task (job, state, sort_key);
-- Keep this index the youngest one.
-- While the table is small, all indexes cost the same and the planner takes the youngest.
-- Sessions keep that plan after the table has grown.
ALTER TABLE opendataflow.task ADD PRIMARY KEY (job, data_id);

-- The number of tasks of a job in each state is the sum of all its rows here.
-- `stale`: how many of these tasks are DONE and stale.
-- Each statement that changes tasks adds one row for each changed state.
-- A single shared row would serialize the writers.
-- compact_counts() merges the rows from time to time.
CREATE TABLE opendataflow.task_count (
    job    text NOT NULL,
    state  text NOT NULL,
    tasks  bigint NOT NULL,
    stale  bigint NOT NULL DEFAULT 0
);
CREATE INDEX task_count_of ON opendataflow.task_count (job);

-- A live process that may claim. After `expires_at` (database clock) the process can't claim. Its runs continue.
-- `slots`: how many runs of `jobs` together a local engine starts at most; null if that is not known.
CREATE TABLE opendataflow.lease (
    id          uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    kind        text NOT NULL CHECK (kind IN ('local', 'operator')),
    host        text NOT NULL,
    boot        text NOT NULL,
    runs_home   text NOT NULL,
    expires_at  timestamptz NOT NULL,
    epoch       bigint NOT NULL DEFAULT 0,
    opened_at   timestamptz NOT NULL DEFAULT now(),
    slots       integer CHECK (slots > 0),
    jobs        text[] NOT NULL DEFAULT '{}'
);

-- The operator that leads: the owner of this lease. The table has one row.
-- A takeover is possible after the lease has ended, and increments the epoch.
-- `identity`: separates the pods of this database from the pods of other databases in the same cluster.
-- `namespaces`: the only namespaces that the operator manages; empty for all.
-- `home`: the uid of the service account whose operators may lead; null until one leads. `home_name`: its namespace/name.
-- `restored_at`: when the loss of history was noticed last. Tokens of runs from before may be older than those of lost runs.
-- `host`: its name. `ended_at`, `reason`: when and why it gave up; null while it leads, and if it ended without a word.
CREATE TABLE opendataflow.leader (
    only_one  boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    identity  text NOT NULL DEFAULT left(md5(gen_random_uuid()::text), 12),
    lease     uuid,
    epoch     bigint NOT NULL DEFAULT 0,
    since     timestamptz,
    namespaces text[] NOT NULL DEFAULT '{}',
    host      text,
    ended_at  timestamptz,
    reason    text,
    home      text,
    home_name text CHECK (home_name LIKE '_%/_%'),
    restored_at timestamptz,
    CONSTRAINT home_has_name CHECK ((home IS NULL) = (home_name IS NULL))
);
INSERT INTO opendataflow.leader DEFAULT VALUES;

-- Pods and SparkApplications of runs that the database has forgotten, see sql/functions/51_orphans.sql.
-- While a row exists, no task of the job and the data id is claimed, and none that reads what the job writes.
CREATE TABLE opendataflow.orphan (
    uid        text PRIMARY KEY,
    run        bigint NOT NULL,
    job        text NOT NULL,
    data_id    text NOT NULL,
    namespace  text NOT NULL,
    name       text NOT NULL,
    since      timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The last request of each resource that was executed, so that no request runs twice.
-- `owner`: "job ID" for spec.resubmit (`id` is the id written there), "action UID" for a DataFlowAction.
-- `answer`: the result that the resource's status shows.
CREATE TABLE opendataflow.request (
    owner   text PRIMARY KEY,
    id      text NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    answer  jsonb NOT NULL
);

-- One attempt at one task. The row records the locks of the run, and the release of the locks uses it.
-- `reads`: the inputs, with the versions in `read_fences`. `writes`: the outputs.
-- `lease`, `host`, `boot` and `runs_home` identify the owner, also after the lease is deleted.
-- A `forced` run locks only those inputs that were READY, and its row is never cleaned.
-- `nonce`: a random value that nobody knows before the pod of the run is created. It identifies the pod.
-- `cancel_requested`: a person asked for the end of the run. The engine reacts within two seconds.
CREATE TABLE opendataflow.run (
    id             bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
    job            text NOT NULL,
    data_id        text NOT NULL,
    state          text NOT NULL DEFAULT 'RUNNING'
                   CHECK (state IN ('RUNNING', 'SUCCEEDED', 'FAILED', 'LOST', 'CANCELLED')),
    attempt        integer NOT NULL CHECK (attempt > 0),
    fence          bigint NOT NULL UNIQUE,
    nonce          uuid NOT NULL DEFAULT gen_random_uuid(),
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

-- One step of a pipeline in a run that has ended: reading a source, a transformation, or the write.
-- Ordinals may be missing if the report was too large. `error`: one sentence, with the traceback below.
-- `stdout`: the end of the printed text. Pods report neither traceback nor `stdout`; both are in the pod's log.
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

-- Each change of a state or of a job's limits, with the actor and the reason. Rows are added and never changed.
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
COMMENT ON COLUMN opendataflow.history.owner IS 'data set of a chunk, job of a task, or the job itself (with an empty data id)';

-- Rows that one statement writes through a view of schema dataflow.
-- The end of the statement deletes them before commit.
CREATE UNLOGGED TABLE opendataflow.view_row (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    view     text NOT NULL,
    content  jsonb NOT NULL
);

-- The breaker of a job whose chunks fail in a row; no row if none has failed since the last success.
-- `failed`: the chunks that failed without a success in between. `runs`: their last runs. `since`: the first failure.
-- The breaker opens at breaker_threshold() failed chunks. While it is open, `probe` is the run that tests the job.
-- `tried`: the data id of the last probe.
-- `forgiven`: the chunks whose attempts were refunded when the breaker last opened.
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

-- The last report to each notification target about each kind of failure of a job.
-- `failing`: true if a failure was reported, false if a recovery was reported, null if nothing was reported.
-- `claimed_until`: one engine is sending the report until then. If that engine crashes, another engine sends it later.
CREATE TABLE opendataflow.alert (
    target         text NOT NULL,
    job            text NOT NULL,
    kind           text NOT NULL CHECK (kind IN ('failed', 'breaker', 'tests', 'preflight')),
    failing        boolean,
    reported_at        timestamptz,
    claimed_until  timestamptz,
    PRIMARY KEY (target, job, kind),
    CONSTRAINT reported_has_time CHECK ((failing IS NULL) = (reported_at IS NULL))
);

-- What must hold before the runs of a job start, by kind. See sql/functions/58_gates.sql.
-- Kind `tests`: the test results of the project; one row for each job that requires passing tests.
-- Kind `preflight`: a location that all chunks of the job need; a row exists only while it is missing or unreachable.
-- `subject`: identifies the current project and pipeline of the job; empty for `preflight`.
-- `passed`: the newest commit whose tests passed, which runs may use (a digest if the project is not a repository).
-- `failed`: a newer commit whose tests failed, or the word `preflight`. `failure`: the message.
-- `passed_by` and `failed_by`: the runs that reported.
-- If `failed` is set and `passed` is not, the gate is closed: one run at a time looks again after `next_look_at`.
-- `looks` counts the looks in vain.
CREATE TABLE opendataflow.gate (
    job           text NOT NULL,
    kind          text NOT NULL CHECK (kind IN ('tests', 'preflight')),
    subject       text NOT NULL,
    passed        text,
    passed_by     bigint NOT NULL DEFAULT 0,
    failed        text,
    failed_by     bigint NOT NULL DEFAULT 0,
    failure       text,
    failing_since timestamptz,
    looks         integer NOT NULL DEFAULT 0 CHECK (looks >= 0),
    next_look_at  timestamptz,
    PRIMARY KEY (job, kind),
    CONSTRAINT failed_says_how CHECK ((failed IS NULL) = (failure IS NULL)
                                      AND (failed IS NULL) = (failing_since IS NULL) AND (failed IS NULL) = (next_look_at IS NULL))
);
