"""What a test can do to a cluster: take away its API server, a node, or the answer to a request."""

import http.client
import json
import ssl
from pathlib import Path
from typing import Any

import pytest

from tests.kube.cluster.nodes import NODES, start_heartbeat, stop_heartbeat, wait_until_unreachable
from tests.kube.cluster.pods import phase, pod
from tests.kube.cluster.proxy import Fault, Proxy, refusal, watch_error
from tests.kube.conftest import OwnCluster
