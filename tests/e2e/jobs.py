"""The job file that most of these tests run: a job that makes squares of numbers."""


def squares(
    source: str, *, parallelism: int = 8, retry: str = "{limit: 0}", command: str = "[sh, work.sh]", **spec: str
) -> str:
    """The text of a file with job `square`. Values are YAML as written; `spec`: more of the data set `numbers`."""
    more = "".join(f"  {name}: {value}\n" for name, value in spec.items())
    return f"""\
apiVersion: opendataflow.io/v1alpha1
kind: DataSet
metadata: {{name: numbers}}
spec:
  chunkSource: {source}
{more}---
apiVersion: opendataflow.io/v1alpha1
kind: DataSet
metadata: {{name: squares}}
---
apiVersion: opendataflow.io/v1alpha1
kind: DataFlowJob
metadata: {{name: square}}
spec:
  inputs: [numbers]
  outputs: [squares]
  parallelism: {parallelism}
  retry: {retry}
  runtime: {{script: {{command: {command}}}}}
"""
