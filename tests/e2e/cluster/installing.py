"""The chart as tests on real nodes install it: with the images of the tests, for some namespaces and no others."""

from collections.abc import Sequence
from datetime import UTC, datetime

from tests.e2e.cluster.real_cluster import RealCluster
from tests.helm.chart import CHART

RELEASE = "dataflow"
_SMALL = "--set=database.builtIn.persistence.size=100Mi"
"""As large as the volumes of the nodes are, or smaller."""

_SECONDS = 300


def image_values(cluster: RealCluster, **images: str) -> list[str]:
    """The values that name images which the nodes have then. `images`: the value, with `_` for `.`, and which image."""
    values = []
    for value, which in images.items():
        repository, _, tag = cluster.image(which).rpartition(":")
        place = value.replace("_", ".")
        values += [f"--set={place}.repository={repository}", f"--set-string={place}.tag={tag}"]
    return values


def install(cluster: RealCluster, namespace: str, *values: str, watched: Sequence[str] = ()) -> datetime:
    """Install or upgrade the chart in a namespace, for it or for those that are `watched`, and wait until it is ready.

    Return when helm began. Raises Unavailable where its images can't be had, CalledProcessError where helm refuses it.
    """
    images = image_values(cluster, image="operator", database_builtIn_image="postgres")
    whole = ("upgrade", "--install", RELEASE, str(CHART), "--take-ownership", "--wait", f"--timeout={_SECONDS}s")
    namespaces = f"--set=namespaces={{{','.join(watched or [namespace])}}}"
    begun = datetime.now(UTC)
    cluster.helm(namespace, *whole, namespaces, _SMALL, *images, *values, seconds=_SECONDS + 60)
    return begun
