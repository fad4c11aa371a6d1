"""Passwords for data sets of other namespaces: a job names the Secret, and accepts where the password is sent."""

from typing import Any

import pytest

from opendataflow.core.kubernetes.passwords import describe_location, location_hash, passwords_of, with_own_logins
from opendataflow.core.kubernetes.pods import Password, SecretKey
from opendataflow.errors import InvalidInput, LocationNotAccepted
from opendataflow.model.fields.rules import CLUSTER_CONTEXT
from opendataflow.model.records.claim import DeclaredJob
from opendataflow.model.records.dataset import DataSetFacts
from opendataflow.model.resources.api import DataFlowJob
from opendataflow.model.resources.jobfile import parse_job_file
from opendataflow.names import API_VERSION

SECRET = {"name": "theirs", "key": "password"}


def job(**spec: Any) -> DataFlowJob:
    inputs = ["own", "team-a/raw", "today"]
    body = {"inputs": inputs, "outputs": ["out"], "runtime": {"script": {"image": "x"}}, **spec}
    whole = {"apiVersion": API_VERSION, "kind": "DataFlowJob", "metadata": {"name": "load", "namespace": "team-b"}}
    return DataFlowJob.model_validate({**whole, "spec": body}, context=CLUSTER_CONTEXT)


def row(key: str, **columns: Any) -> dict[str, Any]:
    unset = dict.fromkeys(DataSetFacts.__dataclass_fields__)
    return {**unset, "id": key, "options": {}, "secret_ref": None, **columns}


def raw(**columns: Any) -> dict[str, Any]:
    """The shared data set, whose owner names a Secret and a user of its own."""
    own = {"kind": "postgres", "hostname": "db.a", "username": "a", "secret_ref": {"secretRef": SECRET}}
    return row("team-a/raw", **(own | columns))


def declared(*rows: dict[str, Any]) -> DeclaredJob:
    own = row("team-b/own", secret_ref={"secretRef": {"name": "ours", "key": "k"}})
    return DeclaredJob({}, (own, *rows, row("today")))


def credentials(**more: Any) -> dict[str, Any]:
    return {"team-a/raw": {"secretRef": {"name": "mine", "key": "k"}, **more}}


def test_a_secret_that_another_namespace_has_named_is_never_used() -> None:
    sealed = raw(secret_ref={"passkeySecretRef": SECRET}, encryptedpass="df1:x")
    for shared in (raw(), sealed):
        assert passwords_of(job(), declared(shared)) == {"team-b/own": Password(secret=SecretKey("ours", "k"))}
        seen = {one["id"]: one for one in with_own_logins(job(), declared(shared)).datasets}
        assert (seen["team-a/raw"]["secret_ref"], seen["team-a/raw"]["encryptedpass"]) == (None, None)
        assert seen["team-a/raw"]["username"] == "a"
        assert seen["team-b/own"]["secret_ref"] is not None


def test_a_job_sends_its_own_password_to_the_location_that_it_has_accepted() -> None:
    made = job(credentials=credentials(acceptLocation=location_hash(raw()), username="b"))
    assert passwords_of(made, declared(raw()))["team-a/raw"] == Password(secret=SecretKey("mine", "k"))
    (_, shared, _) = with_own_logins(made, declared(raw())).datasets
    assert shared["username"] == "b"


@pytest.mark.parametrize(
    "changed",
    [
        {"hostname": "db.evil"},
        {"url": "jdbc:postgresql://db.evil/d"},
        {"kind": "mysql"},
        {"database": "other"},
        {"options": {"socketFactory": "x"}},
    ],
)
def test_a_location_that_its_owner_has_changed_gets_no_password_before_the_job_accepts_it(
    changed: dict[str, Any],
) -> None:
    made = job(credentials=credentials(acceptLocation=location_hash(raw())))
    moved = raw(**changed)
    with pytest.raises(LocationNotAccepted) as refused:
        passwords_of(made, declared(moved))
    assert describe_location(moved) in str(refused.value)
    assert f"write acceptLocation: {location_hash(moved)}" in str(refused.value)


def test_a_password_is_sent_nowhere_before_its_location_is_accepted() -> None:
    with pytest.raises(LocationNotAccepted, match=r"of team-a/raw has no acceptLocation: .* hostname db\.a"):
        passwords_of(job(credentials=credentials()), declared(raw()))


def test_another_table_or_user_of_the_owner_on_the_same_server_changes_no_hash() -> None:
    assert location_hash(raw(tablename="t", schemaname="s", format="f", username="c")) == location_hash(raw())


@pytest.mark.parametrize("name", ["own", "team-a/other"])
def test_credentials_are_for_inputs_of_other_namespaces(name: str) -> None:
    text = f"""\
apiVersion: {API_VERSION}
kind: DataFlowJob
metadata: {{name: load}}
spec:
  inputs: [own, team-a/raw]
  credentials: {{{name}: {{secretRef: {{name: s, key: k}}}}}}
  runtime: {{script: {{command: [x]}}}}
"""
    with pytest.raises(InvalidInput, match="credentials are for inputs of other namespaces"):
        parse_job_file(text, "f.yaml")
