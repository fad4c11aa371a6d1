"""Passwords for a data set of another team: its reader names the Secret, and accepts where the password is sent."""

import re

import pytest

from tests.kube.cluster.api import Object
from tests.kube.jobs import dataset, job
from tests.kube.scene import Flows, Scene
from tests.waiting import wait_until

FIRST, SECOND = ({"kind": "postgres", "hostname": host, "username": "owner"} for host in ("db.first", "db.second"))


def shared(location: dict[str, str], reader: str) -> Object:
    """A data set whose owner names a Secret, which exists in the namespace of its reader, too."""
    secret = {"secretRef": {"name": "login", "key": "password"}}
    return dataset("raw", 2, location=location, credentials=secret, shareWith=[reader])


def secrets(flows: Flows, name: str) -> list[list[tuple[str, str]]]:
    """The variables of each pod of a job that come from a Secret."""
    return [
        [
            (one["name"], one["valueFrom"]["secretKeyRef"]["name"])
            for one in pod["spec"]["containers"][0]["env"]
            if "secretKeyRef" in one.get("valueFrom", {})
        ]
        for pod in flows.pods(name)
    ]


@pytest.mark.usefixtures("operator")
def test_no_run_reads_a_secret_that_the_owner_of_a_shared_data_set_names(ours: Scene, theirs: Flows) -> None:
    raw = f"{ours.namespace}/raw"
    ours.apply(shared(FIRST, theirs.namespace))
    theirs.apply(dataset("out"), job("load", [raw], ["out"]))
    theirs.until_done(theirs.key("load"), 2)
    assert secrets(theirs, "load") == [[], []]
    wait_until(lambda: bool(theirs.status("load").get("sharedInputs")), "the status shows the location")
    (seen,) = theirs.status("load")["sharedInputs"]
    assert (seen["dataset"], seen["location"]) == (raw, "kind postgres, hostname db.first")


@pytest.mark.usefixtures("operator")
def test_a_reader_s_password_goes_to_no_server_that_the_reader_has_not_accepted(ours: Scene, theirs: Flows) -> None:
    raw, mine = f"{ours.namespace}/raw", {"username": "reader", "secretRef": {"name": "mine", "key": "password"}}
    ours.apply(shared(FIRST, theirs.namespace))
    theirs.apply(dataset("out"), job("load", [raw], ["out"], credentials={raw: mine}))
    first = theirs.sees("load", "Stalled", "True", "LocationNotAccepted", saying="hostname db.first")
    theirs.patch("load", credentials={raw: {**mine, "acceptLocation": accepted(first)}})
    theirs.until_done(theirs.key("load"), 2)
    assert secrets(theirs, "load") == [[("raw_password", "mine")]] * 2
    assert variable(theirs, "raw_username") == ["reader"] * 2

    ours.apply(shared(SECOND, theirs.namespace))
    second = theirs.sees("load", "Stalled", "True", "LocationNotAccepted", saying="hostname db.second")
    theirs.patch("load", resubmit={"id": "again", "chunks": ["0-0"]})
    theirs.sees("load", "Stalled", "True", "LocationNotAccepted", saying="hostname db.second")
    assert len(theirs.runs(theirs.key("load"))) == 2
    theirs.patch("load", credentials={raw: {**mine, "acceptLocation": accepted(second)}})
    theirs.sees("load", "Stalled", "False", "NotStalled")
    assert theirs.consumed(theirs.key("load")) == [(0, 0), (0, 0)]


def accepted(message: str) -> str:
    """The hash in the message of a condition."""
    found = re.search(r"write acceptLocation: (loc-\w+)", message)
    assert found is not None
    return found[1]


def variable(flows: Flows, name: str) -> list[str]:
    """A variable of each pod of a job."""
    return [
        one["value"] for pod in flows.pods("load") for one in pod["spec"]["containers"][0]["env"] if one["name"] == name
    ]
