"""The commands of `dataflow`: their modules, their lines in `dataflow --help`, and their examples. It imports nothing.

`dataflow --help` needs no module of a command, and a command needs only its own.
"""

from typing import NamedTuple


class Panel:
    """Headings of `dataflow --help`."""

    RUN = "Declare and run"
    SHOW = "Show"
    CHANGE = "Change"
    MAINTAIN = "Maintain"
    LEGACY = "Known from the Java framework"


PANELS = (Panel.RUN, Panel.SHOW, Panel.CHANGE, Panel.MAINTAIN, Panel.LEGACY)


class Entry(NamedTuple):
    """One command. `modules` register it and its subcommands. Without a `summary` the help does not list it."""

    modules: tuple[str, ...]
    panel: str = ""
    summary: str = ""


_VERBS, _SCALE, _LEGACY = ("jobs.verbs",), ("jobs.scale",), ("legacy.commands",)

COMMANDS: dict[str, Entry] = {
    "apply": Entry(("jobs.apply",), Panel.RUN, "Declare the data sets and jobs of job files: all or none."),
    "init": Entry(("jobs.init",), Panel.RUN, "Write a first job into a folder."),
    "local": Entry(("jobs.local",), Panel.RUN, "Apply job files and run their jobs on this machine."),
    "run": Entry(("jobs.wrap",), Panel.RUN, "Run a program for one ready chunk of a job."),
    "delete": Entry(("jobs.delete",), Panel.RUN, "Delete a job. Chunks, tasks and history stay."),
    "pipeline": Entry(("pipeline.commands", "pipeline.history"), Panel.RUN, "Create, test and run pipelines by hand."),
    "status": Entry(("reports.status",), Panel.SHOW, "Show the progress of jobs, with failures and their remedies."),
    "why": Entry(("reports.status",), Panel.SHOW, "Explain why a chunk's task does not run, and what helps."),
    "get": Entry(("reports.get",), Panel.SHOW, "List jobs, tasks, data sets, chunks or runs."),
    "describe": Entry(("reports.describe",), Panel.SHOW, "Show all details of one job, data set, chunk or run."),
    "inspect": Entry(("reports.inspection",), Panel.SHOW, "Answer five questions about the data of a chunk."),
    "five": Entry(("reports.inspection",)),
    "logs": Entry(("reports.logs",), Panel.SHOW, "Print the log of a run."),
    "ui": Entry(("reports.ui",), Panel.SHOW, "Serve the dashboard for a browser on this machine."),
    "resubmit": Entry(_VERBS, Panel.CHANGE, "Ask for tasks again."),
    "hold": Entry(_VERBS, Panel.CHANGE, "Keep tasks from running, or chunks from being read and written."),
    "release": Entry(_VERBS, Panel.CHANGE, "Undo a hold or a skip."),
    "skip": Entry(_VERBS, Panel.CHANGE, "Exclude tasks from processing."),
    "force": Entry(_VERBS, Panel.CHANGE, "Run a task next, whatever the states of its chunks are."),
    "cancel": Entry(_VERBS, Panel.CHANGE, "End runs now."),
    "publish": Entry(_VERBS, Panel.CHANGE, "Report that chunks exist: they become READY."),
    "accept": Entry(_VERBS, Panel.CHANGE, "Accept chunks that are PENDING."),
    "reject": Entry(_VERBS, Panel.CHANGE, "Reject chunks that are PENDING."),
    "lost": Entry(_VERBS, Panel.CHANGE, "Declare a run dead whose host is gone."),
    "scale": Entry(_SCALE, Panel.CHANGE, "Change the number of runs that a job may have at a time."),
    "suspend": Entry(_SCALE, Panel.CHANGE, "Start no new runs of a job."),
    "resume": Entry(_SCALE, Panel.CHANGE, "Start runs of a suspended job again."),
    "chunks": Entry(
        ("chunks.load", "chunks.plan", "chunks.check"), Panel.CHANGE, "Plan, load and check the chunks of a data set."
    ),
    "doctor": Entry(
        ("administration.doctor",), Panel.MAINTAIN, "Check this machine, and list what waits for a person."
    ),
    "db": Entry(
        ("administration.db", "administration.restored"),
        Panel.MAINTAIN,
        "Migrate, check, restore or move the database.",
    ),
    "crypt": Entry(
        ("administration.crypt",), Panel.MAINTAIN, "Encrypt passwords, decrypt them, or change their passkey."
    ),
    "notify": Entry(("administration.notify",), Panel.MAINTAIN, "Test notifications about failures."),
    "history": Entry(("reports.history",), Panel.MAINTAIN, "Delete old history."),
    "sql": Entry(_LEGACY, Panel.LEGACY, "Print the result of an SQL query."),
    "dml": Entry(_LEGACY, Panel.LEGACY, "Change rows of job, dataset and datastatus."),
    "runs": Entry(_LEGACY, Panel.LEGACY, "List the 20 rows of datastatus that changed last."),
    "jobs": Entry(_LEGACY, Panel.LEGACY, "List the rows of job."),
    "datasets": Entry(_LEGACY, Panel.LEGACY, "List the rows of dataset."),
    "getjob": Entry(_LEGACY, Panel.LEGACY, "Print a job's next data id and its data sets as JSON."),
    "endjob": Entry(_LEGACY, Panel.LEGACY, "Set the status of a job's outputs for a data id."),
    "SetDataStatus": Entry(_LEGACY, Panel.LEGACY, "Set the status of a chunk."),
    "import-legacy": Entry(("legacy.import_legacy",), Panel.LEGACY, "Import the state of the Java framework."),
    **dict.fromkeys(("GetJobData", "createtables", "ddl", "startjob", "deleterun", "forcejob"), Entry(_LEGACY)),
}
"""Command -> what is known without importing it. The order is that of `dataflow --help`."""

NOUNS: dict[str, dict[str, str]] = {
    "get": {"job": "jobs", "task": "tasks", "dataset": "datasets", "chunk": "chunks", "run": "runs"},
    "describe": {"jobs": "job", "datasets": "dataset", "chunks": "chunk", "runs": "run"},
}
"""Group -> other forms of its commands. Singular and plural are the same command."""

SYNONYMS = {"chunk": "chunks", "pipelines": "pipeline"}
"""Other forms of the names of groups."""

EXAMPLES: dict[str, tuple[str, str]] = {
    "apply": ("dataflow apply -f job.yaml --dry-run", "dataflow apply -f sources.yaml -f job.yaml"),
    "init": ("dataflow init myjob", "dataflow init ."),
    "local": ("dataflow local -f job.yaml --until-caught-up", "dataflow local -f job.yaml --parallelism 4"),
    "run": ("dataflow run -- ./myETL.sh", "dataflow run --job delays --data-id 2013-09 -- ./myETL.sh fast"),
    "delete": ("dataflow delete delays", "dataflow delete old_delays"),
    "pipeline init": ("dataflow pipeline init myproject", "dataflow pipeline init ."),
    "pipeline schema": ("dataflow pipeline schema", "dataflow pipeline schema > project.schema.json"),
    "pipeline list": ("dataflow pipeline list", "dataflow pipeline list -p myproject -o json"),
    "pipeline describe": ("dataflow pipeline describe delays", "dataflow pipeline describe delays -o yaml"),
    "pipeline test": ("dataflow pipeline test", "dataflow pipeline test delays"),
    "pipeline run": (
        "dataflow pipeline run delays --data-id 2013-09",
        "dataflow pipeline run delays --stream items.csv",
    ),
    "pipeline history": ("dataflow pipeline history --failed", "dataflow pipeline history --run 17"),
    "pipeline prepare": ("dataflow pipeline prepare", "SPARK_HOME=/opt/spark dataflow pipeline prepare"),
    "pipeline clean": ("dataflow pipeline clean", "dataflow pipeline clean -p myproject"),
    "status": ("dataflow status", "dataflow status delays -o json"),
    "why": ("dataflow why delays 2013-09", "dataflow why delays 2013-09 -o yaml"),
    "get jobs": ("dataflow get jobs", "dataflow get jobs -o wide"),
    "get tasks": ("dataflow get tasks delays --state FAILED", "dataflow get tasks delays --stale"),
    "get datasets": ("dataflow get datasets", "dataflow get datasets -o json"),
    "get chunks": ("dataflow get chunks flights", "dataflow get chunks flights --status HOLD"),
    "get runs": ("dataflow get runs delays", "dataflow get runs delays 2013-09 --limit 5"),
    "describe job": ("dataflow describe job delays", "dataflow describe job delays -o yaml"),
    "describe dataset": ("dataflow describe dataset flights", "dataflow describe dataset flights -o json"),
    "describe chunk": ("dataflow describe chunk flights 2013-09", "dataflow describe chunk flights 2013-09 -o json"),
    "describe run": ("dataflow describe run 17", "dataflow describe run 17 -o json"),
    "inspect": ("dataflow inspect delays 2013-09", "dataflow inspect delays 2013-09 --check"),
    "logs": ("dataflow logs delays 2013-09", "dataflow logs --run 17 --follow"),
    "ui": ("dataflow ui", "dataflow ui --port 0"),
    "resubmit": ("dataflow resubmit delays 2013-09", "dataflow resubmit delays --failed --dry-run"),
    "hold": ("dataflow hold delays 2013-09 --reason audit", "dataflow hold --dataset flights --from 2013-07"),
    "release": ("dataflow release delays 2013-09", "dataflow release --dataset flights --status HOLD"),
    "skip": ("dataflow skip delays 2013-09", "dataflow skip delays --from 2013-01 --to 2013-03"),
    "force": ("dataflow force delays 2013-09", "dataflow force delays 2013-09 --reason 'input is complete'"),
    "cancel": ("dataflow cancel delays 2013-09", "dataflow cancel delays --status RUNNING"),
    "publish": ("dataflow publish flights 2013-10", "dataflow publish flights 2013-10 2013-11 --dry-run"),
    "accept": ("dataflow accept carrier_delays 2013-09", "dataflow accept carrier_delays --status PENDING"),
    "reject": (
        "dataflow reject carrier_delays 2013-09 --reason 'too few rows'",
        "dataflow reject carrier_delays --status PENDING",
    ),
    "lost": ("dataflow lost 17", "dataflow lost 17 --yes"),
    "scale": ("dataflow scale delays 4", "dataflow scale delays 0 --reason 'the share is full'"),
    "suspend": ("dataflow suspend delays", "dataflow suspend delays --reason maintenance"),
    "resume": ("dataflow resume delays", "dataflow resume delays --reason 'maintenance is over'"),
    "chunks load": (
        "dataflow chunks load chunks.csv --dataset flights",
        "dataflow chunks load - --dataset flights --dry-run",
    ),
    "chunks plan": ("dataflow chunks plan orders --by range id --chunks 16", "dataflow chunks plan orders --write"),
    "chunks check": ("dataflow chunks check orders", "dataflow chunks check orders orders_copy --sum amount"),
    "doctor": ("dataflow doctor", "dataflow doctor -o json"),
    "db migrate": ("dataflow db migrate", "DATAFLOW_DSN=postgresql://me@db/flow dataflow db migrate"),
    "db status": ("dataflow db status", "DATAFLOW_DSN=postgresql://me@db/flow dataflow db status"),
    "db verify": ("dataflow db verify", "DATAFLOW_DSN=postgresql://me@db/flow dataflow db verify"),
    "db move": ("dataflow db move postgresql://me@db/flow", "DATAFLOW_HOME=/srv/flow dataflow db move service=flow"),
    "db restored": ("dataflow db restored", "dataflow db restored --copy"),
    "db assign": ("dataflow db assign flights team-a", "dataflow db assign delays team-b"),
    "crypt new": ("dataflow crypt new", "dataflow crypt new --key-file passkey"),
    "crypt open": ("dataflow crypt open", "dataflow crypt open --key-file passkey"),
    "crypt rotate": ("dataflow crypt rotate --key-file old --new-key-file new < sealed", "dataflow crypt rotate"),
    "notify test": ("dataflow notify test", "DATAFLOW_NOTIFY_COMMAND='mail -s failure me' dataflow notify test"),
    "history clean": ("dataflow history clean --dry-run", "dataflow history clean --older-than 30d --job delays"),
    "sql": ("dataflow sql 'SELECT * FROM datastatus'", "dataflow sql 'SELECT jobid FROM job' -o json"),
    "dml": (
        "dataflow dml \"UPDATE datastatus SET status = 'RESUBMIT' WHERE dataid = '1.0'\"",
        "dataflow dml \"UPDATE dataset SET hostname = 'db2' WHERE datasetid = 'orders'\"",
    ),
    "runs": ("dataflow runs", "dataflow runs -o json"),
    "jobs": ("dataflow jobs", "dataflow jobs -o json"),
    "datasets": ("dataflow datasets", "dataflow datasets -o json"),
    "getjob": ("dataflow getjob loadbob", "dataflow GetJobData loadbob"),
    "endjob": ("dataflow endjob loadbob 1.0 RESUBMIT", "dataflow endjob loadbob 1.0 READY"),
    "SetDataStatus": (
        "dataflow SetDataStatus READY 1.0 bobin fakejob OUT",
        "dataflow SetDataStatus HOLD 1.0 bobout loadbob OUT",
    ),
    "import-legacy": (
        "dataflow import-legacy --dry-run postgresql://me@db/old",
        "dataflow import-legacy --take-over --running skip postgresql://me@db/old",
    ),
}
"""Command -> two ways to call it."""
