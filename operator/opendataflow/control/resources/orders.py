"""Makes the order for a claimed run of a DataFlowJob. Pure.

The command comes from the resource. The locations of the data come from the store, as they were at the claim.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from opendataflow.core.databases.attempts import make_owner
from opendataflow.core.kubernetes.passwords import passwords_of, with_own_logins
from opendataflow.core.kubernetes.pipeline_pods import with_project
from opendataflow.core.kubernetes.pods import Container, Operator, PodConfig, check_config, run_pod
from opendataflow.core.kubernetes.policy.pod_security import (
    Violation,
    check_violations,
    judge_namespace,
    judge_pod_security,
)
from opendataflow.core.kubernetes.policy.spark_policy import judge_application, judge_settings
from opendataflow.core.kubernetes.spark_application import APPLICATION_FIELD, check_application, spark_application
from opendataflow.core.kubernetes.spark_pods import driver_container, driver_pod
from opendataflow.core.pipelines.pipeline_order import MODULE
from opendataflow.core.runs.declared import starts_same_runs
from opendataflow.core.runs.environment import JobFacts
from opendataflow.keys import bare, input_key, key_of
from opendataflow.model.fields.field_types import duration_seconds
from opendataflow.model.records.claim import ClaimedRun, DeclaredJob
from opendataflow.model.records.dataset import DataSetFacts
from opendataflow.model.records.pod import PodOrder
from opendataflow.model.records.run import Host
from opendataflow.model.resources.jobs import DataFlowJob, SparkApplication

_SAMPLE = ClaimedRun(0, "job", "sample", 0, 1, 0, 0, {}, "", Host("kubernetes", ""), "", "0" * 32)
"""A run that is never started. The pods of a job's runs differ in values only."""


@dataclass(frozen=True)
class PodOrders:
    """Makes the orders of one job. `declared_as`: the hash of the resource's declaration, as in the store."""

    job: DataFlowJob
    declared_as: str
    operator: Operator

    @property
    def key(self) -> str:
        """The key of the job in the store."""
        return key_of(self.job.metadata.namespace, self.job.id)

    def matches(self, declared: DeclaredJob) -> bool:
        """Return whether the store has the declaration of this resource, apart from limits."""
        return starts_same_runs(declared.job["declared_as"], self.declared_as)

    def check(self, declared: DeclaredJob) -> None:
        """Check that pods can be made for the job, and that the policy permits them. Raises InvalidInput."""
        check = check_config if self._application is None else check_application
        check(JobFacts.of(self.job), self._config(declared))
        self._manifest(_SAMPLE, declared)

    def preflight(self, declared: DeclaredJob) -> None:  # a protocol
        """Check nothing: only the pods have the credentials and volumes."""

    def __call__(self, run: ClaimedRun, declared: DeclaredJob) -> PodOrder:
        """Return the order for a run. Raises InvalidInput, as `check` does."""
        return PodOrder(run.identity(self.job.metadata.namespace or ""), self._manifest(run, declared))

    def _manifest(self, run: ClaimedRun, declared: DeclaredJob) -> dict[str, Any]:
        """Return the manifest of a run's pod or SparkApplication, after the operator's policy was applied."""
        config = self._config(declared)
        run, declared = run.with_names(self._names), with_own_logins(self.job, declared).with_names(self._names)
        datasets = {row["id"]: DataSetFacts.of_row(row) for row in declared.datasets}
        facts, spec = JobFacts.of(self.job), self.job.spec
        if self._application is not None:
            manifest = spark_application(facts, run, datasets, config, self.operator)
        else:
            manifest = run_pod(facts, run, datasets, config, self.operator)
        spark, pipeline = spec.runtime.spark, spec.runtime.pipeline
        account, start_deadline = self.operator.spark_account, spec.start_deadline_seconds
        if spark is not None:
            program = {"main": spark.program, "arguments": spark.program_arguments}
            manifest = driver_pod(manifest, spark, program, account, start_deadline)
        if pipeline is not None:
            manifest = driver_pod(manifest, pipeline, {"module": MODULE}, account, start_deadline)
            owner = make_owner(self.operator.engine, self.job.metadata.namespace)
            manifest = with_project(manifest, pipeline, declared.job["tests"], owner)
        check_violations(self._violations(manifest), self.operator.policy)
        return manifest

    def _violations(self, manifest: Mapping[str, Any]) -> Iterator[Violation]:
        policy, runtime = self.operator.policy, self.job.spec.runtime
        yield from judge_namespace(self.job.metadata.namespace or "", policy)
        if self._application is not None:
            yield from judge_application(manifest["spec"], f"{APPLICATION_FIELD}.spec", policy)
            return
        kind = "pipeline" if runtime.spark is None else "spark"
        spark = runtime.spark or runtime.pipeline
        own_account = spark is not None and spark.service_account is not None
        for found in judge_pod_security(manifest, policy):
            is_own = own_account and found.field == "spec.serviceAccountName"
            field = f"runtime.{kind}.serviceAccount" if is_own else f"podTemplate.{found.field}"
            yield Violation(field, found.sentence)
        if spark is not None:
            yield from judge_settings(spark.settings, f"runtime.{kind}.sparkConf", policy)

    @property
    def _names(self) -> Mapping[str, str]:
        """The names of the inputs in runs, by key."""
        spec, namespace = self.job.spec, self.job.metadata.namespace
        return {input_key(namespace, written): spec.name_in_runs(written) for written in spec.inputs}

    @property
    def _application(self) -> SparkApplication | None:
        return self.job.spec.runtime.spark_application

    def _config(self, declared: DeclaredJob) -> PodConfig:
        spec = self.job.spec
        unreachable = spec.on_node_unreachable
        template = spec.pod_template if self._application is None else self._application.template
        return PodConfig(
            main=self._container(),
            template={} if template is None else template.model_dump(mode="json", by_alias=True, exclude_none=True),
            passwords={self._names.get(key, bare(key)): it for key, it in passwords_of(self.job, declared).items()},
            run_deadline=spec.run_deadline_seconds,
            start_deadline=spec.start_deadline_seconds,
            retry_after=None if unreachable is None else duration_seconds(unreachable.retry_after),
            keep_log=spec.keep_log,
        )

    def _container(self) -> Container:
        if self._application is not None:
            return Container(image="")  # the template of the application has the containers
        runtime = self.job.spec.runtime
        script, spark, pipeline = runtime.script, runtime.spark, runtime.pipeline
        if pipeline is not None:
            return driver_container(pipeline, pipeline.image or self.operator.spark_image, "pipeline")
        if spark is not None:
            return driver_container(spark, spark.image or self.operator.spark_image)
        assert script is not None  # a job has exactly one runtime
        assert script.image is not None  # the schema requires it on a cluster
        resources = script.resources
        return Container(
            image=script.image,
            command=script.command,
            args=script.args,
            working_directory=script.working_directory,
            image_pull_policy=script.image_pull_policy,
            resources={} if resources is None else resources.model_dump(mode="json", exclude_defaults=True),
        )


@dataclass(frozen=True)
class OrderMakers:
    """The order makers of the jobs that may run now, by key; the engine reads them. `changed`: called after changes."""

    makers: dict[str, PodOrders]
    operator: Operator
    changed: Callable[[], None]

    def make(self, job: DataFlowJob, declared_as: str) -> PodOrders:
        """Return the order maker of a job. The engine does not get it yet."""
        return PodOrders(job, declared_as, self.operator)

    def add(self, orders: PodOrders) -> None:
        """Add or replace the order maker of a job, so that the job may run."""
        if self.makers.get(orders.key) != orders:
            self.makers[orders.key] = orders
            self.changed()

    def remove(self, job: str) -> None:
        """Remove the order maker of a job, by its key, so that no run of it starts any more."""
        if self.makers.pop(job, None) is not None:
            self.changed()
