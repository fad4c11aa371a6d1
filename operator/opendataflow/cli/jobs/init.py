"""`dataflow init`: writes a first job into a folder. The job runs unchanged."""

import os
import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

from opendataflow.cli.app import app
from opendataflow.cli.output.printing import echo
from opendataflow.errors import InvalidInput, Refused

_JOB = """\
# The data sets and the job. All fields: docs/reference/job-file.md
apiVersion: opendataflow.io/v1alpha1
kind: DataSet
metadata: {{name: {name}-in}}
spec:
  chunkSource:
    list: ["2013-01", "2013-02", "2013-03"]   # these chunks exist; more.csv lists more
---
apiVersion: opendataflow.io/v1alpha1
kind: DataSet
metadata: {{name: {name}-out}}
---
apiVersion: opendataflow.io/v1alpha1
kind: DataFlowJob
metadata: {{name: {name}}}
spec:
  inputs: [{name}-in]
  outputs: [{name}-out]
  parallelism: 2
  runtime:
    script:
      command: [sh, work.sh]
"""

_SCRIPT = """\
#!/bin/sh
# Runs once for each chunk, in this folder. Exit code 0 means success.
# Its environment variables: docs/reference/environment.md
set -eu
echo "making $dataid: run $DATAFLOW_RUN_ID, attempt $DATAFLOW_ATTEMPT"
mkdir -p out
echo "made from $dataid" > "out/$dataid.part"
mv "out/$dataid.part" "out/$dataid.txt"    # readers never see a half-written file
"""

_MORE = """\
id,from,to
2013-04,2013-04-01,2013-05-01
2013-05,2013-05-01,2013-06-01
2013-06,2013-06-01,2013-07-01
"""


@app.command("init")
def init(
    folder: Annotated[
        Path, typer.Argument(help="The folder. Created if missing. Default: the current folder.")
    ] = Path(),
) -> None:
    """Write a first job into a folder: a job file, its script and a list of more chunks. Never overwrite a file."""
    name = _job_name(folder)
    files = {"job.yaml": _JOB.format(name=name), "work.sh": _SCRIPT, "more.csv": _MORE}
    existing = [file for file in files if os.path.lexists(folder / file)]
    if existing:
        raise Refused(f"{folder / existing[0]} is there already: nothing was written; take another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            with (folder / file).open("x") as opened:
                opened.write(text)
    except OSError as error:
        raise InvalidInput(f"{error.filename or folder}: can't be written: {error.strerror}") from error
    echo(f"wrote {', '.join(str(folder / file) for file in files)}; next:")
    job, more = (shlex.quote(str(folder / file)) for file in ("job.yaml", "more.csv"))
    echo(f"  dataflow local -f {job} --until-caught-up")
    echo(f"  dataflow chunks load {more} --dataset {name}-in --publish")


def _job_name(folder: Path) -> str:
    """Return the name of the job: the folder's name, without characters that a job id can't have."""
    words = re.sub(r"[^a-z0-9]+", "-", folder.absolute().resolve().name.lower()).strip("-")[:40].rstrip("-")
    return words if words[:1].isalpha() else f"job-{words}".rstrip("-")
