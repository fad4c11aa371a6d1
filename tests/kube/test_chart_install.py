"""The chart on a real API server: it is taken, installed, upgraded and uninstalled, and leaves what it should.

No container runs here: what the programs in its pods do is tested in `test_chart_rights` and on a real cluster.
"""

import base64
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.helm.chart import CHART, SETS, Failed, Helm, Object, of_kind
from tests.kube.cluster.api import Api
from tests.kube.conftest import OwnCluster, apply_resources, new_namespace
from tests.waiting import wait_until

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
NOTHING_RUNS = ("--set=replicas=0", "--set=nodeSelector.nowhere=yes")
"""Pods of the chart stay Pending: the fake nodes would end them at once."""
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
def helm(own_cluster: OwnCluster, helm_program: Path) -> Helm:
    """helm on the module's own cluster: it installs what the whole cluster has."""
    return Helm(helm_program, own_cluster.plane.kubeconfig)


def install(helm: Helm, namespace: str, *arguments: str, verb: str = "install") -> str:
    """Install or upgrade the chart, without its definitions."""
    return helm(verb, "dataflow", CHART, f"--namespace={namespace}", "--set=crds.install=false", *arguments)


def secret(api: Api, namespace: str, name: str, **data: str) -> None:
    api.create(f"/api/v1/namespaces/{namespace}/secrets", {"metadata": {"name": name}, "stringData": data})


# -- the API server takes it -------------------------------------------------------------------------------


@pytest.mark.parametrize("values", SETS, ids=lambda path: path.stem)
def test_an_api_server_takes_every_object_and_restricted_namespaces_admit_every_pod(
    cluster: Api, helm_program: Path, namespace: str, other_namespace: str, values: Path
) -> None:
    for name in (namespace, other_namespace):
        cluster.patch(f"/api/v1/namespaces/{name}", {"metadata": {"labels": RESTRICTED}})
    text = values.read_text().replace("team-a", namespace).replace("team-b", other_namespace)
    objects = Helm(helm_program).objects(namespace=namespace, values=yaml.safe_load(text))
    ours = [one for one in objects if not one["apiVersion"].startswith("monitoring.coreos.com/")]
    wanted = yaml.safe_dump_all([*ours, *pods(ours, namespace)])
    output = cluster.kubectl("apply", "--server-side", "--dry-run=server", "--force-conflicts", "-f-", stdin=wanted)
    assert output.count("serverside-applied") == len(ours) + len(pods(ours, namespace))


def pods(objects: list[Object], namespace: str) -> list[Object]:
    """A pod of each workload: a namespace's level of security is about pods, not about what makes them."""
    made = []
    for workload in of_kind(objects, "Deployment", "StatefulSet", "Job"):
        template = workload["spec"]["template"]
        spec = {name: value for name, value in template["spec"].items() if name != "serviceAccountName"}
        claims = [claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])]
        spec["volumes"] = spec["volumes"] + [
            {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims
        ]
        metadata = {**template["metadata"], "name": f"{workload['metadata']['name']}-pod", "namespace": namespace}
        made.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    return made


def test_a_pod_that_is_not_restricted_would_have_been_refused(cluster: Api, namespace: str) -> None:
    cluster.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": RESTRICTED}})
    plain = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "plain", "namespace": namespace},
        "spec": {"containers": [{"name": "a", "image": "a"}]},
    }

    def refused() -> bool:
        try:
            cluster.kubectl("apply", "--server-side", "--dry-run=server", "-f-", stdin=yaml.safe_dump(plain))
        except subprocess.CalledProcessError as error:
            return "violates PodSecurity" in error.stderr
        return False

    wait_until(refused, "the namespace is restricted")


# -- install, upgrade, uninstall ---------------------------------------------------------------------------


def test_the_password_of_the_built_in_postgres_outlives_upgrades_and_the_release(
    helm: Helm, own_cluster: OwnCluster, own_namespace: str
) -> None:
    api, path = own_cluster.api, f"/api/v1/namespaces/{own_namespace}/secrets/dataflow-postgres"

    def data() -> dict[str, str]:
        return {key: base64.b64decode(value).decode() for key, value in api.get(path)["data"].items()}

    install(helm, own_namespace, *NOTHING_RUNS)
    first = data()
    assert first["dsn"] == (
        f"postgresql://dataflow:{first['password']}@dataflow-postgres.{own_namespace}.svc:5432/dataflow"
    )
    claim = f"/api/v1/namespaces/{own_namespace}/persistentvolumeclaims/data-dataflow-postgres-0"
    api.wait(claim, lambda _: True, "the volume is asked for")
    install(helm, own_namespace, *NOTHING_RUNS, "--set=parallelism=7", verb="upgrade")
    assert data() == first
    helm("uninstall", "dataflow", f"--namespace={own_namespace}", "--no-hooks")
    assert data() == first
    assert "deletionTimestamp" not in api.get(claim)["metadata"]
    install(helm, own_namespace, *NOTHING_RUNS)
    assert data() == first


def test_uninstall_runs_the_cleanup_and_leaves_nothing_but_data_and_definitions(
    helm: Helm, own_cluster: OwnCluster, own_namespace: str
) -> None:
    api = own_cluster.api
    secret(api, own_namespace, "ours", dsn="postgresql://nobody@nowhere/nothing")
    install(helm, own_namespace, "--set=replicas=0", "--set=database.existingSecret=ours")
    assert "dataflow-cleanup" in everything(api, own_namespace)
    helm("uninstall", "dataflow", f"--namespace={own_namespace}", "--wait")
    wait_until(lambda: everything(api, own_namespace) == "", "all is gone")
    assert {one["metadata"]["name"] for one in api.items(f"/api/v1/namespaces/{own_namespace}/secrets")} == {"ours"}
    assert len(definitions(api)) == 3


def definitions(api: Api) -> list[str]:
    """The names of our custom resource definitions."""
    names = [one["metadata"]["name"] for one in api.items(CRDS)]
    return [name for name in names if name.endswith(".opendataflow.io")]


def everything(api: Api, namespace: str) -> str:
    """Names of what the chart has made, but for Secrets and volumes."""
    kinds = "deploy,sts,svc,sa,role,rolebinding,job,pod,pdb,netpol"
    chosen = "--selector=app.kubernetes.io/name=opendataflow"
    ours = api.kubectl(f"--namespace={namespace}", "get", kinds, chosen, "--output=name")
    cluster_wide = api.kubectl("get", "clusterrole,clusterrolebinding", chosen, "--output=name")
    return ours + "".join(line for line in cluster_wide.splitlines() if f"/{namespace}:" in line)


def test_a_cleanup_that_can_t_run_ends_the_uninstall_in_its_time_and_is_not_needed(
    helm: Helm, own_namespace: str
) -> None:
    install(helm, own_namespace, *NOTHING_RUNS, "--set=uninstall.timeoutSeconds=10")
    with pytest.raises(Failed, match=r"dataflow-cleanup failed.*DeadlineExceeded"):
        helm("uninstall", "dataflow", f"--namespace={own_namespace}", "--timeout=240s")
    helm("uninstall", "dataflow", f"--namespace={own_namespace}", "--no-hooks", "--wait")


def test_a_database_that_is_not_there_is_reported_before_anything_is_installed(
    helm: Helm, own_cluster: OwnCluster, own_namespace: str
) -> None:
    with pytest.raises(Failed, match=f"there is no Secret ours in namespace {own_namespace}: create it first"):
        install(helm, own_namespace, "--set=database.existingSecret=ours")
    secret(own_cluster.api, own_namespace, "ours", url="postgresql://a/b", other="x")
    with pytest.raises(Failed, match=f"Secret ours in namespace {own_namespace} has no key dsn: it has other, url"):
        install(helm, own_namespace, "--set=database.existingSecret=ours")
    assert everything(own_cluster.api, own_namespace) == ""
    install(helm, own_namespace, *NOTHING_RUNS, "--set=database.existingSecret=ours", "--set=database.secretKey=url")


def test_a_first_install_into_a_namespace_that_is_made_with_it_names_the_missing_secret(helm: Helm) -> None:
    with pytest.raises(Failed, match="there is no Secret ours in namespace flow-new: create it first"):
        install(helm, "flow-new", "--create-namespace", "--set=database.existingSecret=ours")


def test_definitions_of_kubectl_are_taken_over_when_asked_and_upgraded_and_kept(
    helm: Helm, own_cluster: OwnCluster, own_namespace: str
) -> None:
    api = own_cluster.api
    whole = ("dataflow", CHART, f"--namespace={own_namespace}", *NOTHING_RUNS)
    with pytest.raises(Failed, match=r"CustomResourceDefinition .* exists and cannot be imported into the current"):
        helm("install", *whole)
    helm("install", *whole, "--take-ownership")
    path = f"{CRDS}/datasets.opendataflow.io"
    before = api.get(path)["spec"]["names"]["shortNames"]
    api.patch(path, {"spec": {"names": {"shortNames": ["older"]}}})
    helm("upgrade", *whole, "--set=parallelism=7")
    assert api.get(path)["spec"]["names"]["shortNames"] == before
    helm("uninstall", "dataflow", f"--namespace={own_namespace}", "--no-hooks")
    assert "deletionTimestamp" not in api.get(path)["metadata"]
    helm("install", *whole)
    other = new_namespace(api)
    with pytest.raises(Failed, match=f'must equal "{other}": current value is "{own_namespace}"'):
        helm("install", "dataflow", CHART, f"--namespace={other}", *NOTHING_RUNS)


def test_uninstall_goes_through_where_definitions_and_the_secret_were_deleted_first(
    helm: Helm, own_cluster: OwnCluster, own_namespace: str
) -> None:
    api = own_cluster.api
    secret(api, own_namespace, "ours", dsn="postgresql://nobody@nowhere/nothing")
    install(helm, own_namespace, "--set=replicas=0", "--set=database.existingSecret=ours")
    api.delete(f"/api/v1/namespaces/{own_namespace}/secrets/ours")
    api.delete(f"/apis/apps/v1/namespaces/{own_namespace}/deployments/dataflow")
    try:
        for name in ("datasets", "dataflowjobs", "dataflowactions"):
            api.delete(f"{CRDS}/{name}.opendataflow.io")
        helm("uninstall", "dataflow", f"--namespace={own_namespace}")
    finally:
        wait_until(lambda: definitions(api) == [], "the definitions are gone")
        apply_resources(api)
    wait_until(lambda: everything(api, own_namespace) == "", "all is gone")


def test_notes_name_the_next_three_commands_and_that_postgres_is_not_for_production(helm: Helm) -> None:
    def notes(*arguments: str) -> str:
        return install(helm, "flow", "--dry-run=client", *arguments).split("NOTES:\n")[1]

    output = notes()
    for command in (
        "kubectl -n flow rollout status deployment/dataflow",
        "--set 'spark.namespaces={flows}'",
        "kubectl -n flows apply -f examples/",
        "kubectl -n flows get dataflow",
    ):
        assert command in output
    assert "NOT FOR PRODUCTION" in output
    own = notes("--set=database.existingSecret=ours", "--set=namespaces={team-a,team-b}")
    assert "NOT FOR PRODUCTION" not in own
    assert "namespaces team-a, team-b" in own
    assert "kubectl -n team-a apply" in own


# -- people ------------------------------------------------------------------------------------------------


def test_who_has_the_roles_view_and_edit_may_see_and_change_custom_resources(
    helm: Helm, own_cluster: OwnCluster, own_namespace: str
) -> None:
    api = own_cluster.api
    install(helm, own_namespace, *NOTHING_RUNS)
    for role in ("view", "edit"):
        binding = f"--clusterrole={role}", f"--user={role}"
        api.kubectl(f"--namespace={own_namespace}", "create", "rolebinding", role, *binding)

    def may(user: str, verb: str, resource: str, part: str = "") -> bool:
        what = {"group": "opendataflow.io", "resource": resource, "subresource": part, "verb": verb}
        asked = {"spec": {"user": user, "resourceAttributes": {**what, "namespace": own_namespace}}}
        return bool(api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", asked)["status"]["allowed"])

    wait_until(lambda: may("view", "list", "datasets"), "the role view is put together")
    wait_until(lambda: may("edit", "create", "dataflowjobs"), "the role edit is put together")
    assert may("edit", "patch", "dataflowjobs", "scale")
    assert may("edit", "create", "dataflowactions")
    assert not may("view", "create", "dataflowactions")
    assert not may("view", "patch", "dataflowjobs", "scale")
    assert not may("edit", "patch", "dataflowjobs", "status")
