"""Turns a claimed run into an order for the launcher, from the job file that is on this machine.

What is executed comes from the file, where the data is from Postgres: a data set may have been declared elsewhere.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from opendataflow.core.runs.command import command
from opendataflow.engine.passwords import Passwords
from opendataflow.model.records.claim import ClaimedRun, DeclaredJob
from opendataflow.model.records.dataset import DataSetFacts
from opendataflow.model.records.run import RunOrder
from opendataflow.model.resources.api import DataFlowJob


@dataclass(frozen=True)
class FileOrders:
    """Makes the orders of one job. `folder`: of its file. `python`: the interpreter for Spark programs. `clones`: where
    projects of pipelines are kept that are fetched.

    `passwords`: opens those of its data sets, for the eyes of the runs only.
    """

    job: DataFlowJob
    folder: Path
    python: str
    clones: Path
    passwords: Passwords | None = None

    def fits(self, declared: DeclaredJob) -> bool:
        """Whether the file has the data sets that the job has now."""
        spec = self.job.spec
        written = {*((d, "IN") for d in spec.inputs), *((d, "OUT") for d in spec.outputs)}
        return written == {(row["id"], row["itemtype"]) for row in declared.datasets}

    def __call__(self, run: ClaimedRun, declared: DeclaredJob) -> RunOrder:
        """Return the order.

        InvalidInput where the file does not fit to what is declared, Refused where a password can't be opened.
        """
        datasets = {row["id"]: DataSetFacts.of_row(row) for row in declared.datasets}
        made = command(self.job, run, datasets, self.folder, self.python, self.clones, declared.job["tests"])
        made = replace(made, env={**made.env, **self._opened(declared)})
        return run.order(made, self.job.spec.run_deadline_seconds)

    def _opened(self, declared: DeclaredJob) -> dict[str, str]:
        return self.passwords.variables(declared.datasets) if self.passwords else {}
