"""One installation by the chart for all tests of faults and of secrets; see `installation`."""

from collections.abc import Iterator

import pytest

from tests.e2e.cluster.conftest import left_out_when_unavailable
from tests.e2e.cluster.faults.installation import Installation, installed
from tests.e2e.cluster.real_cluster import RealCluster
from tests.kube.scene import Flows


@pytest.fixture(scope="session")
def lasting_installation(cluster: RealCluster) -> Iterator[Installation]:
    """See `installation`."""
    with left_out_when_unavailable(), installed(cluster) as made:
        yield made


@pytest.fixture
def installation(cluster: RealCluster, lasting_installation: Installation) -> Installation:
    """An operator of the chart that works for two namespaces, whose tests share it: leave nothing that runs."""
    cluster.namespaces = lasting_installation.namespaces
    return lasting_installation


@pytest.fixture
def here(installation: Installation) -> Flows:
    """Jobs of the first namespace."""
    return installation.here


@pytest.fixture
def there(installation: Installation) -> Flows:
    """Jobs of the second one."""
    return installation.there
