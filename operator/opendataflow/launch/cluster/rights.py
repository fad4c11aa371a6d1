"""Asks the cluster which account and which rights this program has. Every account may ask that about itself. It decides
nothing."""

import asyncio
from collections.abc import Iterable

from opendataflow.core.kubernetes.rights import Right
from opendataflow.errors import ClusterRefused
from opendataflow.launch.cluster.api import Api, Resource
from opendataflow.model.records.leader import Home

REVIEWS = Resource("apis/authorization.k8s.io/v1", "selfsubjectaccessreviews")
ACCOUNTS = Resource("apis/authentication.k8s.io/v1", "selfsubjectreviews")
CONCURRENT_REQUESTS = 4


async def own_account(api: Api) -> Home | None:
    """Return the service account of this program; None if it is a person's, or if the cluster does not say it."""
    try:
        answer = await api.review(ACCOUNTS, {"metadata": {}})
    except ClusterRefused:
        return None
    user = (answer.get("status") or {}).get("userInfo") or {}
    match str(user.get("username")).split(":"), user.get("uid"):
        case ["system", "serviceaccount", namespace, name], str(uid) if uid:
            return Home(uid, namespace, name)
    return None


async def missing_rights(api: Api, namespace: str | None, rights: Iterable[Right]) -> list[Right]:
    """Return the rights that this program lacks in a namespace (None: in all namespaces).

    Return an empty list if the cluster refuses the question. Raises ClusterUnreachable.
    """
    free = asyncio.Semaphore(CONCURRENT_REQUESTS)

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
            answer = await api.review(REVIEWS, body)
        return bool((answer.get("status") or {}).get("allowed"))

    rights = list(rights)
    try:
        answers = await asyncio.gather(*map(allowed, rights))
    except ClusterRefused:
        return []
    return [right for right, answer in zip(rights, answers, strict=True) if not answer]
