"""The variables and files of every run, however it is started. The context file is next to the log. Pure."""

import json
from collections.abc import Mapping

from opendataflow.core.runs.environment import CONTEXT_FILE, JobFacts, RunFacts, context, environment
from opendataflow.model.records.claim import ClaimedRun
from opendataflow.model.records.dataset import DataSetFacts


def environment_and_files(
    job: JobFacts, run: ClaimedRun, datasets: Mapping[str, DataSetFacts]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the variables of a run and the files of its folder. Raise InvalidInput if a variable is set twice."""
    facts = RunFacts(run.run, run.data_id, run.attempt, run.fence)
    text = json.dumps(context(job, facts, datasets, run.bounds), indent=2, ensure_ascii=False)
    return environment(job, facts, datasets), {CONTEXT_FILE: text}
