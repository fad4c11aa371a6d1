"""Verbs through the cluster: creates a DataFlowAction, waits for the operator, and prints its answer.

The output is the same as for a verb through Postgres.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from opendataflow.cli.cluster.choice import Cluster, with_cluster
from opendataflow.cli.output.printing import echo
from opendataflow.core.text.verbs import Verb
from opendataflow.errors import (
    ClusterRefused,
    ClusterUnreachable,
    CreateUncertain,
    InvalidInput,
    Refused,
    UnknownThing,
)
from opendataflow.keys import bare
from opendataflow.model.fields.field_types import MOST_ITEMS
from opendataflow.model.records.claim import Selection
from opendataflow.model.resources.statuses import DataFlowActionStatus
from opendataflow.names import ANNOTATION_REQUESTED_BY, API_VERSION, Refusal

WAIT_SECONDS = 60.0
"""Maximum time to wait for the operator's answer."""
CREATE_SECONDS = 5.0
"""Maximum time to retry the create request while the API server does not answer."""
_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 1.0

_NOT_FOUND = 404
_ERRORS = {Refusal.UNKNOWN: UnknownThing, Refusal.INVALID: InvalidInput}


def ask(
    verb: Verb,
    owner: str,
    chosen: Sequence[str] | Selection,
    actor: str,
    reason: str | None,
    *,
    of_chunks: bool,
    cascade: bool,
) -> None:
    """Request a verb, wait for its result and print it. If it was refused, raise the same error as Postgres."""
    spec = {
        "dataset" if of_chunks else "job": bare(owner),
        "action": verb.name,
        **_selector(chosen),
        **({"cascade": True} if cascade else {}),
        **({"reason": reason} if reason is not None else {}),
    }
    status = with_cluster(lambda cluster: request_action(cluster, spec, actor), owner)
    if status.phase == "Refused":
        raise _ERRORS.get(Refusal(status.reason or Refusal.REFUSED), Refused)(status.message or "refused")
    for line in status.lines:
        echo(line)
    total = status.counts.done + status.counts.unchanged if status.counts else 0
    if total > len(status.lines):
        echo(f"… and {total - len(status.lines)} more ({status.message})")


def _selector(chosen: Sequence[str] | Selection) -> dict[str, Any]:
    """Return the fields of a DataFlowAction that select the chunks."""
    if not isinstance(chosen, Selection):
        ids = list(dict.fromkeys(chosen))
        if len(ids) > MOST_ITEMS:
            raise InvalidInput(
                f"{len(ids)} data ids are more than the {MOST_ITEMS} of one DataFlowAction: choose them by --from and "
                "--to or by --status, or ask for them in parts"
            )
        return {"chunks": ids}
    states = list(dict.fromkeys(chosen.states))
    limits = {name: value for name, value in (("from", chosen.first), ("to", chosen.last)) if value is not None}
    if len(states) > 1 or [bool(states), bool(limits), chosen.stale].count(True) > 1:
        raise InvalidInput(
            "through the cluster chunks are chosen by one --status, --stale, or --from and --to: ask once for each"
        )
    if chosen.stale:
        return {"stale": True}
    return {"range": limits} if limits else {"status": states[0]}


async def request_action(cluster: Cluster, spec: Mapping[str, Any], actor: str) -> DataFlowActionStatus:
    """Create a DataFlowAction and return its final status. Raise ClusterUnreachable if no answer arrives in time."""
    from opendataflow.launch.cluster.api import custom

    actions = custom("dataflowactions")
    # Not `generateName`: with a fixed name, a repeated create request can't create a second action.
    name = f"{spec['action']}-{secrets.token_hex(5)}"
    metadata = {"name": name, "annotations": {ANNOTATION_REQUESTED_BY: actor}}
    body = {"apiVersion": API_VERSION, "kind": "DataFlowAction", "metadata": metadata, "spec": spec}
    await _create_with_retries(lambda: cluster.api.create(actions, cluster.namespace, body))
    end, pause = time.monotonic() + WAIT_SECONDS, _PAUSE_SECONDS
    while time.monotonic() < end:
        try:
            status = (await cluster.api.get(actions, cluster.namespace, name)).get("status") or {}
        except ClusterUnreachable:
            status = {}
        except ClusterRefused as error:
            if error.code != _NOT_FOUND:
                raise
            raise Refused(f"DataFlowAction {name} was deleted before its answer was read") from error
        if status.get("phase") in ("Done", "Refused"):
            return DataFlowActionStatus.model_validate(status)
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
    where = f"{name} --namespace {cluster.namespace}"
    raise ClusterUnreachable(
        f"the operator has not answered within {WAIT_SECONDS:.0f} s; it does it as soon as it can. "
        f"To see: kubectl get dataflowaction {where}; to take it back: kubectl delete dataflowaction {where}"
    )


async def _create_with_retries(create: Callable[[], Awaitable[object]]) -> None:
    """Send the create request. Repeat it for CREATE_SECONDS while its result is unknown."""
    end, again = time.monotonic() + CREATE_SECONDS, False
    while True:
        try:
            await create()
        except CreateUncertain as error:
            if time.monotonic() >= end:
                raise ClusterUnreachable(str(error)) from error
            again = True
            await asyncio.sleep(_PAUSE_SECONDS)
            continue
        except ClusterRefused as error:
            if not again or error.reason != "AlreadyExists":
                raise
        return
