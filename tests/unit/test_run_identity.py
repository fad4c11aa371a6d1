"""Which pods and SparkApplications are those of a run, by what they show."""

from dataclasses import replace
from typing import Any

import pytest

from opendataflow.core.kubernetes.run_identity import Match, match_driver, match_object
from opendataflow.launch.cluster.seen import parse_pod
from opendataflow.model.records.application import ObservedApplication
from opendataflow.model.records.pod import RunIdentity
from opendataflow.names import pod_name
from tests.pods import NONCE, RUNNING, claimed, pod

RUN = claimed(7).identity("team")
POD = parse_pod(pod(RUNNING))
DRIVER = replace(POD, name="load-r7-c0ffee-driver", finalizer=False, owner="a7", submission="s1")
APPLICATION = ObservedApplication("team", RUN.name, "a7", driver=DRIVER.name, submission="s1")

OTHERS: list[dict[str, Any]] = [
    {"namespace": "team-b"},
    {"run": 8},
    {"run": None},
    {"fence": 40},
    {"fence": None},
    {"nonce": None},
    {"engine": "e2"},
    {"engine": None},
]


def test_the_pod_that_was_created_for_a_run_is_its_pod() -> None:
    assert match_object(POD, RUN, "e1") is Match.OURS


@pytest.mark.parametrize("other", [*OTHERS, {"name": "load-r7-c0ffef"}], ids=str)
def test_a_pod_that_differs_in_anything_is_foreign(other: dict[str, Any]) -> None:
    assert match_object(replace(POD, **other), RUN, "e1") is Match.FOREIGN


def test_a_pod_of_the_run_without_our_finalizer_is_not_protected() -> None:
    assert match_object(replace(POD, finalizer=False), RUN, "e1") is Match.UNPROTECTED
    assert match_object(replace(POD, finalizer=False, fence=40), RUN, "e1") is Match.FOREIGN


def test_nothing_matches_a_run_without_a_nonce() -> None:
    run = RunIdentity(RUN.run, RUN.namespace, RUN.name, RUN.fence, "")
    assert match_object(replace(POD, nonce=""), run, "e1") is Match.FOREIGN


def test_the_driver_that_the_spark_operator_names_is_that_of_the_run() -> None:
    assert match_driver(DRIVER, APPLICATION, RUN, "e1") is Match.OURS


def test_a_driver_of_a_spark_operator_without_webhook_has_no_owner() -> None:
    assert match_driver(replace(DRIVER, owner=None), APPLICATION, RUN, "e1") is Match.OURS


def test_a_driver_is_open_until_the_spark_operator_has_named_it() -> None:
    assert match_driver(DRIVER, None, RUN, "e1") is Match.OPEN
    assert match_driver(DRIVER, replace(APPLICATION, driver=None), RUN, "e1") is Match.OPEN


def test_a_pod_whose_name_does_not_fit_its_nonce_is_foreign() -> None:
    assert match_object(replace(POD, nonce="0" + NONCE[1:]), RUN, "e1") is Match.FOREIGN


def test_objects_of_a_run_with_the_same_number_and_another_nonce_are_of_a_lost_history() -> None:
    nonce = "0" + NONCE[1:]
    lost = replace(POD, nonce=nonce, name=pod_name("load", RUN.run, nonce), job="load", data_id="1")
    assert match_object(lost, RUN, "e1") is Match.LOST
    assert match_driver(replace(DRIVER, nonce=nonce), APPLICATION, RUN, "e1") is Match.LOST


@pytest.mark.parametrize("other", [*OTHERS, {"name": "driver"}, {"owner": "a8"}, {"submission": "s2"}], ids=str)
def test_a_driver_that_differs_in_anything_is_foreign(other: dict[str, Any]) -> None:
    assert match_driver(replace(DRIVER, **other), APPLICATION, RUN, "e1") is Match.FOREIGN
