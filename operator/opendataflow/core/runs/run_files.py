"""What every run finds around it, however it was started: its variables, and the context file beside its log. Pure."""

import json
from collections.abc import Mapping

from opendataflow.core.runs.environment import CONTEXT_FILE, JobFacts, RunFacts, context, environment
from opendataflow.model.records.claim import ClaimedRun
from opendataflow.model.records.dataset import DataSetFacts


def surroundings(
    job: JobFacts, run: ClaimedRun, datasets: Mapping[str, DataSetFacts]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the variables of a run and the files of its folder. InvalidInput where two things set one variable."""
    this = RunFacts(run.run, run.data_id, run.attempt, run.fence)
    text = json.dumps(context(job, this, datasets, run.bounds), indent=2, ensure_ascii=False)
    return environment(job, this, datasets), {CONTEXT_FILE: text}
