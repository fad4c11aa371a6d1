"""Two teams with a namespace each, and one operator for both."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.cluster.api import Api
from tests.kube.scene import Flows, Running, Scene, new_scene


@pytest.fixture
def ours(dsn: str, cluster: Api, namespace: str, tmp_path: Path) -> Iterator[Scene]:
    """The namespace of the first team."""
    with new_scene(dsn, cluster, namespace, tmp_path) as made:
        yield made


@pytest.fixture
def theirs(ours: Scene, other_namespace: str) -> Flows:
    """The namespace of the other team."""
    return Flows(ours.api, other_namespace, ours.database, ours.recorder)


@pytest.fixture
def operator(ours: Scene, theirs: Flows) -> Running:
    running = ours.start(DATAFLOW_NAMESPACES=f"{ours.namespace},{theirs.namespace}")
    running.until_ready()
    return running
