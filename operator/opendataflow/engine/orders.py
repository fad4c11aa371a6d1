"""Turns a claimed run into an order for the launcher, from the job file that is on this machine.

What is executed comes from the file, where the data is from Postgres: a data set may have been declared elsewhere.
"""

from dataclasses import dataclass
from pathlib import Path

from opendataflow.core.command import command
from opendataflow.model.claim import ClaimedRun, DeclaredJob
from opendataflow.model.dataset import DataSetFacts
from opendataflow.model.resources import DataFlowJob
from opendataflow.model.run import RunOrder
from opendataflow.names import run_name


@dataclass(frozen=True)
class FileOrders:
    """Makes the orders of one job. `folder`: of its file. `python`: the interpreter for Spark programs."""

    job: DataFlowJob
    folder: Path
    python: str

    def fits(self, declared: DeclaredJob) -> bool:
        """Whether the file has the data sets that the job has now."""
        spec = self.job.spec
        written = {*((d, "IN") for d in spec.inputs), *((d, "OUT") for d in spec.outputs)}
        return written == {(row["id"], row["itemtype"]) for row in declared.datasets}

    def __call__(self, run: ClaimedRun, declared: DeclaredJob) -> RunOrder:
        """Return the order; InvalidInput where the file does not fit to what is declared."""
        datasets = {row["id"]: DataSetFacts.of_row(row) for row in declared.datasets}
        return RunOrder(
            run=run.run,
            name=run_name(run.job, run.run),
            job=run.job,
            data_id=run.data_id,
            attempt=run.attempt,
            fence=run.fence,
            command=command(self.job, run, datasets, self.folder, self.python),
            deadline=self.job.spec.run_deadline_seconds,
        )
