"""Which cluster is meant and who we are there: kubeconfig files as kubectl reads them, and what is wrong with them."""

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from opendataflow.errors import ClusterUnreachable, InvalidInput
from opendataflow.launch.cluster.access import find_access, from_kubeconfig


def config(user: Any = None, **cluster: Any) -> dict[str, Any]:
    return {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443/", **cluster}}],
        "users": [{"name": "u", "user": dict(user or {})}],
    }


def written(folder: Path, content: Any, name: str = "config") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


async def test_the_current_context_counts(tmp_path: Path) -> None:
    access = from_kubeconfig([written(tmp_path, config({"token": "t"}))])
    assert (access.server, access.namespace) == ("https://127.0.0.1:6443", "team")
    assert await access.header() == "Bearer t"


async def test_a_context_can_be_named(tmp_path: Path) -> None:
    content = config({"token": "t"})
    content["contexts"].append({"name": "other", "context": {"cluster": "c"}})
    access = from_kubeconfig([written(tmp_path, content)], "other")
    assert (access.namespace, await access.header()) == ("default", None)


async def test_of_several_files_the_first_that_has_a_thing_counts(tmp_path: Path) -> None:
    first = written(tmp_path, {"current-context": "here", "users": [{"name": "u", "user": {"token": "first"}}]}, "a")
    second = written(tmp_path, config({"token": "second"}), "b")
    assert await from_kubeconfig([tmp_path / "missing", first, second]).header() == "Bearer first"


async def test_a_token_may_be_in_a_file_beside_the_config(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t\n")
    assert await from_kubeconfig([written(tmp_path, config({"tokenFile": "token"}))]).header() == "Bearer t"


async def test_a_user_may_have_a_password(tmp_path: Path) -> None:
    access = from_kubeconfig([written(tmp_path, config({"username": "u", "password": "ü"}))])
    assert await access.header() == f"Basic {base64.b64encode('u:ü'.encode()).decode()}"


async def test_plain_http_needs_no_certificates(tmp_path: Path) -> None:
    assert await from_kubeconfig([written(tmp_path, config(server="http://127.0.0.1:8001"))]).tls() is None


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("a: [", "config is no YAML"),
        ("[]", "config is no kubeconfig file"),
        ({}, "no current-context; choose one with `kubectl config use-context`"),
        ({"current-context": "gone"}, "there is no context gone"),
        ({**config(), "clusters": []}, "there is no cluster c"),
        ({**config(), "users": None}, "there is no user u"),
        (config(server=""), "cluster c has no server"),
        (config(**{"certificate-authority-data": "%%"}), "certificate-authority-data is no base64 text"),
        (config(**{"certificate-authority": "ca.crt"}), "ca.crt can't be read: No such file or directory"),
    ],
)
def test_what_is_wrong_with_a_file_is_reported(content: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as refused:
        from_kubeconfig([written(tmp_path, content)])
    assert sentence in str(refused.value)


async def test_certificates_that_are_none_are_reported(tmp_path: Path) -> None:
    data = base64.b64encode(b"no certificate").decode()
    access = from_kubeconfig([written(tmp_path, config(**{"certificate-authority-data": data}))])
    with pytest.raises(InvalidInput, match=r"the certificates for https://127\.0\.0\.1:6443 can't be used"):
        await access.tls()


async def test_a_plugin_that_fails_is_reported_with_its_last_line(tmp_path: Path) -> None:
    plugin = {"exec": {"command": "sh", "args": ["-c", "echo a >&2; echo log in first >&2; exit 3"]}}
    access = from_kubeconfig([written(tmp_path, config(plugin))])
    with pytest.raises(ClusterUnreachable, match="the credential plugin sh ended with exit code 3: log in first"):
        await access.header()


async def test_a_plugin_that_prints_no_credential_is_reported(tmp_path: Path) -> None:
    access = from_kubeconfig([written(tmp_path, config({"exec": {"command": "true"}}))])
    with pytest.raises(ClusterUnreachable, match="the credential plugin true gave none"):
        await access.header()


async def test_an_identity_that_is_no_more_in_use_is_reported(tmp_path: Path) -> None:
    access = from_kubeconfig([written(tmp_path, config({"auth-provider": {"name": "gcp"}}))])
    with pytest.raises(InvalidInput, match="use an exec plugin"):
        await access.header()


def test_the_environment_s_file_comes_first_and_then_the_home_s(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    written(tmp_path / ".kube", config(server="https://home"))
    named = written(tmp_path, config(server="https://named"))
    home = {"HOME": str(tmp_path)}
    assert find_access(home, tmp_path / "none").server == "https://home"
    assert find_access({**home, "KUBECONFIG": str(named)}, tmp_path / "none").server == "https://named"


def test_without_any_cluster_one_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="set KUBECONFIG to the path of a kubeconfig file"):
        find_access({"HOME": str(tmp_path)}, tmp_path / "none")
