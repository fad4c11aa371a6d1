"""Reads the facts about a run's chunk, and reports an error as one sentence.

The runner names a JSON file in DATAFLOW_CONTEXT: the data id, the fencing token and the location of each data set. The
jobs use no other paths, so the same code works on any disk. This module never reads or writes data.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path


class ChunkError(Exception):
    """A chunk can't be processed. The text is one sentence: the chunk, the error and the remedy."""


@dataclass(frozen=True)
class Chunk:
    """The chunk of this run.

    `data_id`: the month, such as 2013-01. `fence`: the fencing token, which grows with every attempt. `folders`: data
    set -> folder.
    """

    data_id: str
    fence: int
    folders: Mapping[str, Path]

    def folder(self, dataset: str) -> Path:
        """Return the folder of a data set. Raise ChunkError if the job file has no url for it."""
        if dataset not in self.folders:
            raise ChunkError(f"{dataset} {self.data_id}: the job file names no url for it; write location.url")
        return self.folders[dataset]

    def partition(self, dataset: str) -> Path:
        """Return the folder of this chunk within a data set with one folder per month."""
        return self.folder(dataset) / f"month={self.data_id}"


def read_chunk(environ: Mapping[str, str] = os.environ) -> Chunk:
    """Read the file in DATAFLOW_CONTEXT. Relative urls start in the job file's folder."""
    if "DATAFLOW_CONTEXT" not in environ:
        raise ChunkError("DATAFLOW_CONTEXT is not set: start this job with `dataflow local -f job.yaml`")
    context = json.loads(Path(environ["DATAFLOW_CONTEXT"]).read_text(encoding="utf-8"))
    folders = {name: Path(dataset["url"]) for name, dataset in context["datasets"].items() if dataset.get("url")}
    return Chunk(data_id=context["data_id"], fence=int(context["fence"]), folders=folders)


def run_chunk(job: Callable[[Chunk], None]) -> int:
    """Run the job for this process's chunk. Return 0, or 1 with the error sentence as the last line of stderr.

    The cause of a ChunkError is printed above the sentence, with its traceback.
    """
    try:
        job(read_chunk())
    except ChunkError as error:
        if error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        print(error, file=sys.stderr, flush=True)
        return 1
    return 0
