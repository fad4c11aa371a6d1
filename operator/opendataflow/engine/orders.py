"""Makes the order for a claimed run from a job file on this machine.

The command comes from the file. The locations of the data come from Postgres, because a data set may have been declared
elsewhere.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from opendataflow.core.pipelines.pipeline_order import LocalFacts
from opendataflow.core.runs.command import command
from opendataflow.engine.passwords import Passwords
from opendataflow.model.records.claim import ClaimedRun, DeclaredJob
from opendataflow.model.records.dataset import DataSetFacts
from opendataflow.model.records.run import RunOrder
from opendataflow.model.resources.api import DataFlowJob


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

    def __call__(self, run: ClaimedRun, declared: DeclaredJob) -> RunOrder:
        """Return the order for a run.

        Raises InvalidInput if the file does not match the declaration, Refused if a password can't be decrypted.
        """
        datasets = {row["id"]: DataSetFacts.of_row(row) for row in declared.datasets}
        facts = LocalFacts(self.clones, declared.job["tests"], self.owner)
        made = command(self.job, run, datasets, self.folder, self.python, facts)
        made = replace(made, env={**made.env, **self._decrypted_passwords(declared)})
        return run.order(made, self.job.spec.run_deadline_seconds)

    def _decrypted_passwords(self, declared: DeclaredJob) -> dict[str, str]:
        return self.passwords.variables(declared.datasets) if self.passwords else {}
