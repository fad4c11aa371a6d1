"""`dataflow delete`: deletes a job that a file has declared."""

from opendataflow.cli.app import OutputOption, ReasonOption, actor, app
from opendataflow.cli.jobs.scale import JobArgument, active_runs, with_job
from opendataflow.cli.output.printing import Output, echo, print_document
from opendataflow.core.text.explain import counted
from opendataflow.store.resources import delete_declared_job


@app.command("delete")
def delete(job: JobArgument, reason: ReasonOption = None, output: OutputOption = Output.TABLE) -> None:
    """Delete a job: start no new runs, and release its outputs for another job. Chunks, tasks and history stay.

    An apply of its file brings the job back. Active runs continue.
    """
    left = with_job(job, lambda store: delete_declared_job(store, job, actor(), reason))
    if output.is_document:
        print_document({"job": job, "running": left.running, "stale": left.stale}, output)
        return
    echo(f"job {job} is deleted; {active_runs(left.running)}; its outputs are free for another job")
    if left.stale:
        tasks = f"{counted(left.stale, 'finished task')} {'is' if left.stale == 1 else 'are'}"
        echo(f"{tasks} stale, which another job with these outputs does not know: resubmit them there", err=True)
