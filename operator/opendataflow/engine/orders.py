"""Makes the order for a claimed run from a job file on this machine.

The command comes from the file. The locations of the data come from Postgres, because a data set may have been declared
elsewhere.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from opendataflow.core.pipelines.pipeline_order import LocalFacts
from opendataflow.core.runs.command import command
from opendataflow.core.runs.preflight import Finding, Locations
from opendataflow.engine.passwords import Passwords
from opendataflow.model.records.claim import ClaimedRun, DeclaredJob
from opendataflow.model.records.dataset import DataSetFacts
from opendataflow.model.records.look import Look
from opendataflow.model.records.run import RunOrder
from opendataflow.model.resources.api import DataFlowJob
from opendataflow.names import TODAY, Answer, Preflight
from opendataflow.opening.looking import Expected, Looking


def look_at_datasets(declared: DeclaredJob, folder: Path) -> Locations:
    """Look from this machine at the data sets of a job. `folder`: where relative paths begin.

    The location of a data set is the same for all chunks. So a missing one prevents all runs of the job.
    """
    rows = [row for row in declared.datasets if row["id"] != TODAY]
    looks = Looking("", os.environ, folder).look_at([Expected(row, row["itemtype"] == "IN") for row in rows])
    return Locations([_finding(row["itemtype"], look) for row, look in zip(rows, looks, strict=True)])


def _finding(itemtype: str, look: Look) -> Finding:
    if look.found is Answer.NO:
        role = "input" if itemtype == "IN" else "output"
        return Finding(replace(look, sentence=f"{role} {look.dataset}: {look.sentence}"), Preflight.JOB)
    # Of an output only the folder or the connection was looked at.
    return Finding(look if itemtype == "IN" else replace(look, found=Answer.UNKNOWN))


@dataclass(frozen=True)
class FileOrders:
    """Makes the orders of one job.

    `folder`: the folder of the job file. `python`: the interpreter for Spark programs. `clones`: the folder of fetched
    pipeline projects. `passwords`: decrypts the passwords of the data sets; only the runs get them. `owner`: of the
    chunks that pipelines write.
    """

    job: DataFlowJob
    folder: Path
    python: str
    clones: Path
    passwords: Passwords | None = None
    owner: str | None = None

    def matches(self, declared: DeclaredJob) -> bool:
        """Return whether the file names the data sets of the job as it is declared now."""
        spec = self.job.spec
        written = {*((d, "IN") for d in spec.inputs), *((d, "OUT") for d in spec.outputs)}
        return written == {(row["id"], row["itemtype"]) for row in declared.datasets}

    def preflight(self, declared: DeclaredJob) -> Callable[[], Locations] | None:
        """Return the check of the data sets' locations, if the script asks for it. Pipelines check them themselves."""
        script = self.job.spec.runtime.script
        return partial(look_at_datasets, declared, self.folder) if script is not None and script.preflight else None

    def __call__(self, run: ClaimedRun, declared: DeclaredJob) -> RunOrder:
        """Return the order for a run.

        Raises InvalidInput if the file does not match the declaration, Refused if a password can't be decrypted.
        """
        names = {name: self.job.spec.name_in_runs(name) for name in self.job.spec.inputs}
        run, declared = run.with_names(names), declared.with_names(names)
        datasets = {row["id"]: DataSetFacts.of_row(row) for row in declared.datasets}
        facts = LocalFacts(self.clones, declared.job["tests"], self.owner)
        made = command(self.job, run, datasets, self.folder, self.python, facts)
        made = replace(made, env={**made.env, **self._decrypted_passwords(declared)})
        return run.order(made, self.job.spec.run_deadline_seconds)

    def _decrypted_passwords(self, declared: DeclaredJob) -> dict[str, str]:
        return self.passwords.variables(declared.datasets) if self.passwords else {}
