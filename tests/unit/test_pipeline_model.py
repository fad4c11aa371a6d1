"""What is refused of a pipeline before a run starts: one sentence that names the field."""

from typing import Any

import pytest
from pydantic import ValidationError

from opendataflow.model.fields.rules import CLUSTER_CONTEXT
from opendataflow.model.fields.validation_errors import sentences
from opendataflow.model.resources.api import DataFlowJob
from opendataflow.names import API_VERSION

SECRET = {"name": "git", "key": "token"}
BY_WHAT = (
    "on a cluster projects are fetched by https or ssh; write such a url, and secretRef if it needs a token or key"
)
KEYS = "by ssh a pod needs the private key, in a Secret that secretRef names, and the server's key in knownHosts"
HOST = "h ssh-ed25519 AAAAC3Nz me"
NO_HOST = "it is no key of a server; write a line as ssh-keyscan prints it: the host, the kind of the key, the key"
IN_URL = "a user or password in the url would be shown to everybody; take it out, and write secretRef and username"
OUTPUT = (
    "in a pod it is an absolute path, such as that of a volume of podTemplate, or an address such as s3a://bucket/data"
)
REF = "a ref is a branch, a tag or a whole commit; it has no blanks and does not begin with -"


def faults(pipeline: dict[str, Any], context: dict[str, Any] | None) -> list[str]:
    spec = {"inputs": ["a"], "runtime": {"pipeline": pipeline}}
    body = {"apiVersion": API_VERSION, "kind": "DataFlowJob", "metadata": {"name": "x"}, "spec": spec}
    try:
        DataFlowJob.model_validate(body, context=context)
    except ValidationError as error:
        return sentences(DataFlowJob, error)
    return []


def git(url: str = "https://h/p.git", **more: Any) -> dict[str, Any]:
    return {"project": {"git": {"url": url, **more}}, "pipeline": "p"}


EVERYWHERE: list[tuple[dict[str, Any], str]] = [
    ({"project": {"path": "/p"}}, ".pipeline: this field is needed"),
    ({"pipeline": "p"}, ".project: this field is needed"),
    ({"project": {}, "pipeline": "p"}, ".project: exactly one of git, path, configMap is wanted, found none"),
    (
        {"project": {"path": "/p", "git": {"url": "https://h/p"}}, "pipeline": "p"},
        ".project: exactly one of git, path, configMap is wanted, found git and path",
    ),
    (git("https://me:hunter2@h/p"), f".project.git.url: {IN_URL}"),
    (git("https://hunter2@h/p"), f".project.git.url: {IN_URL}"),
    (git(ref="--upload-pack=x"), f'.project.git.ref: {REF}, found "--upload-pack=x"'),
    (git(ref=""), '.project.git.ref: text of 1 or more characters is wanted, found ""'),
    (git(folder="a/../../b"), ".project.git.folder: it is a folder of the repository, such as teams/delays: no slash"),
    (git(folder="/a"), ".project.git.folder: it is a folder of the repository, such as teams/delays: no slash"),
    (
        git(username="me"),
        ".project.git.username: a username has no effect without a password or token; write secretRef",
    ),
    (
        git("git@h:p.git", secretRef=SECRET, knownHosts=[HOST], username="me"),
        ".project.git.username: by ssh the user is a part of the url: git@host:path",
    ),
    (git(knownHosts=["ssh-ed25519 AAAAC3Nz"]), f".project.git.knownHosts[0]: {NO_HOST}"),
    (git(knownHosts=[HOST, "# h:22 SSH-2.0-x"]), f".project.git.knownHosts[1]: {NO_HOST}"),
    (
        git("http://h/p", secretRef=SECRET),
        ".project.git.url: a token would be sent over http for everybody to read; write an https url",
    ),
    (
        {**git("https://h/p"), "sparkConf": {"spark.sql.session.timeZone": "Asia/Kathmandu"}},
        ".sparkConf: days and times of pipelines are UTC on every machine",
    ),
]  # fmt: skip

ON_CLUSTERS: list[tuple[dict[str, Any], str]] = [
    (git("ssh://git@h/p"), f".project.git.url: {KEYS}"),
    (git("git@h:p.git", secretRef=SECRET), f".project.git.url: {KEYS}"),
    (git("ssh://h/p", knownHosts=[HOST]), f".project.git.url: {KEYS}"),
    (git("file:///p"), f".project.git.url: {BY_WHAT}"),
    (git("/srv/git@h:p", secretRef=SECRET, knownHosts=[HOST]), f".project.git.url: {BY_WHAT}"),
    ({"project": {"path": "p"}, "pipeline": "p"}, ".project.path: in an image the path of a project is absolute"),
    (
        {"project": {"path": "/p"}, "pipeline": "p", "output": "data"},
        f'.output: {OUTPUT}, found "data"',
    ),
]


@pytest.mark.parametrize("context", [None, CLUSTER_CONTEXT], ids=["machine", "cluster"])
@pytest.mark.parametrize(("pipeline", "sentence"), EVERYWHERE)
def test_an_unreachable_project_is_refused_before_a_run(
    pipeline: dict[str, Any], sentence: str, context: dict[str, Any] | None
) -> None:
    (found,) = faults(pipeline, context)
    assert found.startswith(f"spec.runtime.pipeline{sentence}")
    assert "hunter2" not in found


@pytest.mark.parametrize(("pipeline", "sentence"), ON_CLUSTERS)
def test_what_a_pod_has_not_is_refused_on_clusters_only(pipeline: dict[str, Any], sentence: str) -> None:
    assert faults(pipeline, CLUSTER_CONTEXT) == [f"spec.runtime.pipeline{sentence}"]
    assert faults(pipeline, None) == []


@pytest.mark.parametrize("url", ["ssh://git@h:2222/p", "ssh://h/p", "git@h:p.git"])
def test_a_pod_fetches_by_ssh_with_a_key_from_a_server_that_is_known(url: str) -> None:
    hosts = [HOST, "[h]:2222,10.0.0.1 ecdsa-sha2-nistp256 AAAA+/==", "|1|a=|b= ssh-rsa AAAA"]
    assert faults(git(url, secretRef=SECRET, knownHosts=hosts), CLUSTER_CONTEXT) == []


def test_a_config_map_is_refused_on_one_machine_only() -> None:
    pipeline = {"project": {"configMap": "files"}, "pipeline": "p"}
    assert faults(pipeline, CLUSTER_CONTEXT) == []
    (found,) = faults(pipeline, None)
    assert found == (
        "spec.runtime.pipeline.project.configMap: there are no ConfigMaps on one machine; write the path of the "
        "project's folder"
    )


@pytest.mark.parametrize("ref", ["main", "release/1.0", "v1.0", "0" * 40, "refs/heads/a@b", "fix(#12)", "größe"])
def test_refs_as_git_has_them_are_taken(ref: str) -> None:
    assert faults(git(ref=ref), CLUSTER_CONTEXT) == []


def test_a_setting_with_a_variable_is_refused_for_a_jvm_that_chunks_share() -> None:
    pipeline = {
        "project": {"path": "/p"},
        "pipeline": "p",
        "sparkConf": {"spark.hadoop.fs.s3a.endpoint": "${env.store_hostname}"},
    }
    assert faults({**pipeline, "warm": {"enabled": False}}, None) == []
    assert faults({**pipeline, "warm": {}}, CLUSTER_CONTEXT) == []
    (found,) = faults({**pipeline, "warm": {}}, None)
    assert found.startswith(
        "spec.runtime.pipeline.sparkConf: a JVM that chunks share has no variables of a chunk; write the value instead "
        "of ${env...}, or set warm.enabled to false"
    )


@pytest.mark.parametrize(
    ("warm", "field"),
    [({"maxChunks": 0}, "maxChunks"), ({"maxIdle": "soon"}, "maxIdle"), ({"maxAge": 5}, "maxAge"), ("off", "")],
)
def test_limits_of_a_shared_jvm_are_numbers_and_durations(warm: Any, field: str) -> None:
    (found,) = faults({"project": {"path": "/p"}, "pipeline": "p", "warm": warm}, None)
    assert found.startswith(f"spec.runtime.pipeline.warm{'.' + field if field else ''}: ")
