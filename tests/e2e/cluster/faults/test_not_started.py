"""Pods that can't start on real nodes: each job says in a sentence why, until its run is given up; others go on."""

from collections import defaultdict
from typing import Any

import pytest

from opendataflow.names import ANNOTATION_START_DEADLINE
from tests.e2e.cluster.faults.flows import NO_RETRY, is_right, script
from tests.e2e.cluster.faults.installation import SECONDS, Installation
from tests.kube.conftest import Kubectl
from tests.kube.jobs import dataset, job
from tests.kube.scene import Flows
from tests.waiting import wait_until

Reports = dict[str, set[tuple[str, str]]]


WORDS = {"imageless": "registry.invalid", "roomless": "Insufficient cpu", "needs": "of-the-other-namespace"}
"""What is reported of each job that can't start."""


@pytest.fixture(scope="module")
def waited(lasting_installation: Installation, busybox: str) -> Reports:
    """Jobs whose pods can't start, and one beside them that can: what was reported of each until its run was given up.

    How long they may take to start is cut short once all is reported, so that a busy machine has the time it needs.
    """
    there = lasting_installation.there
    needs = dataset("needs-in", 1, location={"kind": "postgres", "username": "reader"})
    needs["spec"]["credentials"] = {"secretRef": {"name": "of-the-other-namespace", "key": "password"}}
    Kubectl(there.api, lasting_installation.here.namespace)(
        "create", "secret", "generic", "of-the-other-namespace", "--from-literal=password=p1anted"
    )
    late: dict[str, Any] = {"startDeadline": "1h", "retry": NO_RETRY}
    there.flow("imageless", 1, **script("registry.invalid/nothing:1", "true"), **late)
    there.flow("roomless", 1, **script(busybox, "true", resources={"requests": {"cpu": "900"}}), **late)
    there.apply(needs, dataset("needs-out"))
    there.apply(job("needs", ["needs-in"], ["needs-out"], **script(busybox, "true"), **late))
    reports: Reports = defaultdict(set)

    def hindered() -> bool:
        for name in WORDS:
            reports[name].add(there.condition(name, "Progressing")[1:])
        return all(there.database.states(name)["RUNNING"] for name in WORDS)

    def all_is_reported() -> bool:
        hindered()
        messages = {name: " ".join(message for _, message in reports[name]) for name in WORDS}
        return there.database.done("others") == 3 and all(word in messages[name] for name, word in WORDS.items())

    def given_up() -> bool:
        hindered()
        return all(there.database.states(name)["FAILED"] for name in WORDS)

    wait_until(hindered, "they wait", SECONDS)
    there.flow("others", 3, **script(busybox, "true"))
    wait_until(all_is_reported, "others run beside those that can't start, and the reasons are reported", SECONDS)
    over = {"metadata": {"annotations": {ANNOTATION_START_DEADLINE: "1"}}}
    for name in WORDS:
        (pod,) = there.pods(name)
        there.api.patch(there.pod_path(pod["metadata"]["name"]), over)
    wait_until(given_up, "they are given up", SECONDS, every=0.5)
    return reports


def test_an_image_that_does_not_exist_is_reported_and_given_up(there: Flows, waited: Reports) -> None:
    words = [message for reason, message in waited["imageless"] if reason == "ImagePull"]
    assert any("registry.invalid/nothing:1" in each for each in words), waited["imageless"]
    there.until_event("imageless", "ImagePull", SECONDS)
    (run,) = there.runs("imageless")
    assert run["failure_class"] == "Infrastructure"
    assert run["message"].startswith("image pull: ")


def test_a_pod_without_room_is_reported_while_others_run(there: Flows, waited: Reports) -> None:
    words = [message for reason, message in waited["roomless"] if reason == "Unschedulable"]
    assert any("Insufficient cpu" in each for each in words), waited["roomless"]
    there.until_event("roomless", "Unschedulable", SECONDS)
    (run,) = there.runs("roomless")
    assert run["failure_class"] == "Infrastructure"
    assert "Insufficient cpu" in run["message"]
    assert max(each["finished_at"] for each in there.runs("others")) < run["finished_at"]


def test_a_secret_of_another_namespace_is_not_found_and_the_job_says_so(there: Flows, waited: Reports) -> None:
    missing = 'it can\'t start: secret "of-the-other-namespace" not found (CreateContainerConfigError)'
    words = [message for reason, message in waited["needs"] if reason == "PodPending"]
    assert any(missing in each for each in words), waited["needs"]
    (run,) = there.runs("needs")
    assert (run["failure_class"], run["message"]) == ("Infrastructure", missing)


def test_runs_that_have_not_started_leave_nothing_behind(there: Flows) -> None:
    is_right(there)
