"""What a run is told about its chunk, and how a job of this example says in one sentence what is wrong.

The runner names a JSON file in DATAFLOW_CONTEXT: the data id, the fence and where each data set is. The jobs
know no other place, so the same code works on any disk. This module never reads or writes data.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path


class ChunkError(Exception):
    """The chunk can't be done; the text is one sentence: which chunk, what is wrong, what to do."""


@dataclass(frozen=True)
class Chunk:
    """The chunk of this run.

    `data_id`: the month, such as 2013-01. `fence`: grows with every attempt. `folders`: data set -> folder.
    """

    data_id: str
    fence: int
    folders: Mapping[str, Path]

    def folder(self, dataset: str) -> Path:
        """Return the folder of a data set. Raises ChunkError where the job file names no url for it."""
        if dataset not in self.folders:
            raise ChunkError(f"{dataset} {self.data_id}: the job file names no url for it; write location.url")
        return self.folders[dataset]

    def partition(self, dataset: str) -> Path:
        """Return the folder of this chunk within a data set that keeps one folder for each month."""
        return self.folder(dataset) / f"month={self.data_id}"


def read_chunk(environ: Mapping[str, str] = os.environ) -> Chunk:
    """Read the file that DATAFLOW_CONTEXT names. Relative urls start in the job file's folder."""
    if "DATAFLOW_CONTEXT" not in environ:
        raise ChunkError("DATAFLOW_CONTEXT is not set: start this job with `dataflow local -f job.yaml`")
    context = json.loads(Path(environ["DATAFLOW_CONTEXT"]).read_text(encoding="utf-8"))
    folders = {name: Path(told["url"]) for name, told in context["datasets"].items() if told.get("url")}
    return Chunk(data_id=context["data_id"], fence=int(context["fence"]), folders=folders)


def run_chunk(job: Callable[[Chunk], None]) -> int:
    """Do the job for this process' chunk; return 0, or 1 with the sentence as the last line of stderr.

    What lies under a ChunkError is printed above the sentence, for whoever wants the whole story.
    """
    try:
        job(read_chunk())
    except ChunkError as error:
        if error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        print(error, file=sys.stderr, flush=True)
        return 1
    return 0
