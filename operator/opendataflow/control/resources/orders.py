"""Turns a claimed run of a DataFlowJob into an order for the cluster. Pure: what is executed comes from the resource,
where the data is from the store, as it was at the claim."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from opendataflow.control.resources.catalog import Entry
from opendataflow.core.kubernetes.pipeline_pods import with_project
from opendataflow.core.kubernetes.pods import Container, Operator, Password, PodWishes, SecretKey, check_wishes, run_pod
from opendataflow.core.kubernetes.spark_application import check_application, spark_application
from opendataflow.core.kubernetes.spark_pods import driver_container, driver_pod
from opendataflow.core.pipelines.pipeline_order import MODULE
from opendataflow.core.runs.declared import same_work
from opendataflow.core.runs.environment import JobFacts
from opendataflow.model.fields.field_types import duration_seconds
from opendataflow.model.records.claim import ClaimedRun, DeclaredJob
from opendataflow.model.records.dataset import DataSetFacts
from opendataflow.model.records.pod import PodOrder
from opendataflow.model.resources.jobs import DataFlowJob, SparkApplication


@dataclass(frozen=True)
class PodOrders:
    """Makes the orders of one job. `declared_as`: what the resource said, as the store has it."""

    job: DataFlowJob
    declared_as: str
    operator: Operator

    def fits(self, declared: DeclaredJob) -> bool:
        """Whether the store has taken over this version of the resource, limits aside."""
        return same_work(declared.job["declared_as"], self.declared_as)

    def check(self, declared: DeclaredJob) -> None:
        """Raise InvalidInput where no pod can be made of it, whatever the run."""
        check = check_wishes if self._application is None else check_application
        check(JobFacts.of(self.job), self._wishes(declared))

    def __call__(self, run: ClaimedRun, declared: DeclaredJob) -> PodOrder:
        """Return the order; InvalidInput as `check` says it."""
        datasets = {row["id"]: DataSetFacts.of_row(row) for row in declared.datasets}
        facts, spec = JobFacts.of(self.job), self.job.spec
        if self._application is not None:
            manifest = spark_application(facts, run, datasets, self._wishes(declared), self.operator)
        else:
            manifest = run_pod(facts, run, datasets, self._wishes(declared), self.operator)
        spark, pipeline = spec.runtime.spark, spec.runtime.pipeline
        account, patience = self.operator.spark_account, spec.start_deadline_seconds
        if spark is not None:
            program = {"main": spark.program, "arguments": spark.program_arguments}
            manifest = driver_pod(manifest, spark, program, account, patience)
        if pipeline is not None:
            manifest = driver_pod(manifest, pipeline, {"module": MODULE}, account, patience)
            manifest = with_project(manifest, pipeline, declared.job["tests"])
        return PodOrder(run.run, run.name, self.job.metadata.namespace or "", manifest)

    @property
    def _application(self) -> SparkApplication | None:
        return self.job.spec.runtime.spark_application

    def _wishes(self, declared: DeclaredJob) -> PodWishes:
        spec = self.job.spec
        unreachable = spec.on_node_unreachable
        template = spec.pod_template if self._application is None else self._application.template
        return PodWishes(
            main=self._container(),
            template={} if template is None else template.model_dump(mode="json", by_alias=True, exclude_none=True),
            passwords={
                row["id"]: password
                for row in declared.datasets
                if (password := _password(row["secret_ref"] or {}, row["encryptedpass"])) is not None
            },
            run_deadline=spec.run_deadline_seconds,
            start_deadline=spec.start_deadline_seconds,
            retry_after=None if unreachable is None else duration_seconds(unreachable.retry_after),
            keep_log=spec.keep_log,
        )

    def _container(self) -> Container:
        if self._application is not None:
            return Container(image="")  # its template says it all
        runtime = self.job.spec.runtime
        script, spark, pipeline = runtime.script, runtime.spark, runtime.pipeline
        if pipeline is not None:
            return driver_container(pipeline, pipeline.image or self.operator.spark_image, "pipeline")
        if spark is not None:
            return driver_container(spark, spark.image or self.operator.spark_image)
        assert script is not None  # a runtime is exactly one of them
        assert script.image is not None  # the schema has seen to it
        resources = script.resources
        return Container(
            image=script.image,
            command=script.command,
            args=script.args,
            working_directory=script.working_directory,
            image_pull_policy=script.image_pull_policy,
            resources={} if resources is None else resources.model_dump(mode="json", exclude_defaults=True),
        )


def _password(reference: Mapping[str, Any], sealed: str | None) -> Password | None:
    """How a password reaches the pod. `reference`: the column `secret_ref`, which core/runs/declared.py writes."""
    secret, passkey = reference.get("secretRef"), reference.get("passkeySecretRef")
    if secret is not None:
        return Password(secret=SecretKey(**secret))
    if sealed is not None:
        return Password(sealed=sealed, passkey=None if passkey is None else SecretKey(**passkey))
    return None


@dataclass(frozen=True)
class Makers:
    """The jobs that may run now: what the engine gets. `changed`: is called after each change."""

    makers: dict[str, PodOrders]
    operator: Operator
    changed: Callable[[], None]

    def make(self, entry: Entry, declared_as: str) -> PodOrders:
        """What a job executes, not yet for the engine."""
        assert isinstance(entry.model, DataFlowJob)
        return PodOrders(entry.model, declared_as, self.operator)

    def there(self, orders: PodOrders) -> None:
        """A job may run, as it is now."""
        if self.makers.get(orders.job.id) != orders:
            self.makers[orders.job.id] = orders
            self.changed()

    def gone(self, job: str) -> None:
        """Nothing of a job is to be started any more."""
        if self.makers.pop(job, None) is not None:
            self.changed()
