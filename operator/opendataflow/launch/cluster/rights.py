"""Asks the cluster what this program may do: everybody may ask that about themselves. It decides nothing."""

import asyncio
from collections.abc import Iterable

from opendataflow.core.kubernetes.rights import Right
from opendataflow.errors import ClusterRefused
from opendataflow.launch.cluster.api import Api, Resource

REVIEWS = Resource("apis/authorization.k8s.io/v1", "selfsubjectaccessreviews")
AT_ONCE = 4


async def missing_rights(api: Api, namespace: str | None, rights: Iterable[Right]) -> list[Right]:
    """Return those that this program does not have in a namespace, None for all.

    ClusterUnreachable where there is no answer. Where it may not even ask, nothing is known to be missing.
    """
    free = asyncio.Semaphore(AT_ONCE)

    async def allowed(right: Right) -> bool:
        attributes = {
            "verb": right.verb,
            "group": right.group,
            "resource": right.resource,
            "subresource": right.sub,
            "namespace": namespace or "",
        }
        body = {"metadata": {}, "spec": {"resourceAttributes": {k: v for k, v in attributes.items() if v}}}
        async with free:
            answer = await api.ask(REVIEWS, body)
        return bool((answer.get("status") or {}).get("allowed"))

    rights = list(rights)
    try:
        answers = await asyncio.gather(*map(allowed, rights))
    except ClusterRefused:
        return []
    return [right for right, answer in zip(rights, answers, strict=True) if not answer]
