"""The launcher of runs as pods, or as SparkApplications: creates them, tells of their ends, lets them go. Its protocol:
`engine.ports`.

    start: POST once -> registered ----------------.
    adopt: seen already -> registered -------------|
                                                   v
    one watch of all pods of this engine -> facts of each pod -> judge -> goes on: wait for the next fact
    a timer: deadlines, nodes that are gone ------------^               -> has to stop: delete it, once
                                                                        -> outcome: log tail of failed ones -> `ended`
    release: finalizer off, label done on, in one patch -> forgotten -> swept a minute or two later

A run whose order is a SparkApplication goes the same way, with its application beside its driver's pod. In memory is a
few facts for each live pod, never a pod. Nothing is concluded of a run whose pod was never seen: its
create may still be on its way. It never commits anything and claims nothing.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from opendataflow import names
from opendataflow.core.kubernetes.application_outcome import judge_application, what_hinders_application
from opendataflow.core.kubernetes.pod_outcome import CANCELLED, ended_by_itself, judge_pod, what_hinders, with_last_line
from opendataflow.core.pipelines.report import read_report
from opendataflow.errors import (
    ClusterRefused,
    ClusterUnreachable,
    CreateUncertain,
    DataflowError,
    NoRights,
)
from opendataflow.launch.cluster import releases
from opendataflow.launch.cluster.answers import is_not_there
from opendataflow.launch.cluster.api import APPLICATIONS, NODES, PODS, Api, Resource, selector
from opendataflow.launch.cluster.applications import Applications, is_application
from opendataflow.launch.cluster.creating import created
from opendataflow.launch.cluster.seen import pod_seen
from opendataflow.launch.cluster.watch import Change, Follower, Happening
from opendataflow.model.records.application import ApplicationSeen
from opendataflow.model.records.claim import ClaimedRun
from opendataflow.model.records.pod import PodOrder, PodSeen, Stop
from opendataflow.model.records.run import Ended, Host, Outcome, Report
from opendataflow.names import OutcomeClass, Reason

LOG_TAIL = 64 * 1024
LOGS_AT_ONCE = 8
LOG_SECONDS = 10.0
"""How long the log of a failed run is asked for: a node that is gone does not answer, and the outcome must not wait."""
TICK_SECONDS = 5.0
ARRIVAL_SECONDS = 0.5
"""How often a pod is looked for that may be on its way."""
LATE_SECONDS = 10.0
"""How long after its grace period a pod is looked at with suspicion, and its node is asked for."""
_LEFT = Outcome(OutcomeClass.INFRASTRUCTURE, "stopped by the operator")
_NO_POD = PodSeen("", "", "")
"""Of a run that has ended without a pod that was ever seen."""


@dataclass
class _Run:
    """A run whose end is waited for. `sure`: no other create of its pod is under way. `stopped`: why we delete its pod.
    `deleting`: a request for that is under way; `refused`: one was refused, and people know. `reported`: its end is on
    its way."""

    run: int
    name: str
    sure: bool = False
    stopped: Outcome | None = None
    deleting: bool = False
    refused: bool = False
    reported: bool = False


@dataclass
class _View:
    """What is seen of one namespace, or of all (None). `listed`: runs of the list that is under way; `closed`: why
    nothing may be done there."""

    namespace: str | None
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    listed: set[int] | None = None
    closed: str | None = None
    begun: bool = False

    def has(self, pod: PodSeen) -> bool:
        """Whether a pod is to be seen here."""
        return self.namespace in (None, pod.namespace)


class ClusterLauncher:
    """Runs as pods of one engine. `engine`: the identity of its database, which its pods carry as a label.

    `note`: tells a person. `namespaces`: the only ones that are watched, each by a watch of its own; none means all.
    """

    def __init__(
        self,
        api: Api,
        engine: str,
        *,
        note: Callable[[str], None],
        namespaces: Collection[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._api = api
        self._engine = engine
        self._note = note
        self._clock = clock
        self._views: dict[str | None, _View] = {where: _View(where) for where in sorted(namespaces) or (None,)}
        self._ours = selector({names.LABEL_ENGINE: engine})
        self._pods: dict[int, PodSeen] = {}
        self._runs: dict[int, _Run] = {}
        self._doubtful: set[int] = set()
        """Runs of which a create may still be on its way, from this process or from an earlier one."""
        self._ends: asyncio.Queue[Ended | BaseException] = asyncio.Queue()
        self._logs = asyncio.Semaphore(LOGS_AT_ONCE)
        self._releases = releases.pod_releases(api, self._ours, note=note, clock=clock)
        self._applications = Applications(api, engine, self._look_at, self._spawn, note=note, clock=clock)
        self._futures: set[asyncio.Task[None]] = set()

    # -- the port --------------------------------------------------------------------------------------------

    @property
    def host(self) -> Host:
        """No machine: pods outlive whoever has created them."""
        return Host("kubernetes", self._engine)

    @property
    def runs_home(self) -> str:
        """Nowhere: pods live in the namespaces of their jobs."""
        return ""

    def begin(self) -> None:
        """Begin to watch; `synced` tells when everything that is there has been seen."""
        self._spawn(self._tick(), "deadlines of the run pods")
        self._releases.begin(self._spawn)
        self._applications.begin()
        for where, view in self._views.items():
            if view.closed is None:
                self.open(where)

    def open(self, namespace: str | None) -> None:
        """Work in a namespace, None for all: there are rights. Comes after `begin`, or is done by it."""
        view = self._views[namespace]
        view.closed = None
        if not view.begun:
            view.begun = True
            self._spawn(self._follow(view), f"watch of the run pods in {namespace or 'all namespaces'}")
            self._applications.open(namespace)

    def shut(self, namespace: str | None, why: str) -> None:
        """Start nothing in a namespace, or in none: rights are missing. Pods that are known are looked after as far as
        the cluster allows it; where nothing was seen yet nothing is asked before it is opened."""
        self._views[namespace].closed = why

    async def synced(self) -> None:
        """Wait until all pods and SparkApplications of this engine have been seen once, where that is allowed."""
        for view in self._views.values():
            if view.closed is None:
                await self._seen_all(view)

    async def _seen_all(self, view: _View) -> None:
        await view.synced.wait()
        await self._applications.synced(view.namespace)

    async def start(self, order: PodOrder) -> None:
        """Create the run's pod or SparkApplication; one that is there already and is ours is as good.

        Raises CreateUncertain, Backpressure, NotCreatable, NamespaceGone or NoRights; a second call is always safe.
        """
        if order.run in self._runs:
            return
        view = self._view(order.namespace)
        if view is not None and view.closed is not None:
            raise NoRights(view.closed)
        try:
            if is_application(order):
                await self._applications.create(order)
            elif order.run not in self._pods:
                seen = await created(self._api, PODS, order, pod_seen, self._engine)
                # The watch may have been faster and know more.
                self._pods.setdefault(order.run, seen)
                if view is not None and view.listed is not None:  # a list that began before can't have it
                    view.listed.add(order.run)
        except CreateUncertain:
            self._doubtful.add(order.run)
            raise
        self._runs[order.run] = _Run(order.run, order.name, sure=order.run not in self._doubtful)
        self._doubtful.discard(order.run)
        self._look_at(order.run)

    async def adopt(self, run: ClaimedRun) -> bool:
        """Go on with what an earlier process has created for a run. False: there is nothing, as far as is known.

        False proves nothing: a create may be on its way. `start` is right then, under the same name. It comes when
        everything was seen that may have the pod: however long rights are missing there, and never where this operator
        does not work at all.
        """
        for view in self._may_have(run):
            if run.run in self._pods and self._pods[run.run].main == names.MAIN_CONTAINER:
                break
            await self._seen_all(view)
        if run.run in self._runs:
            return True
        if run.run not in self._pods and self._applications.get(run.run) is None:
            self._doubtful.add(run.run)
            return False
        self._runs[run.run] = _Run(run.run, run.name)
        self._look_at(run.run)
        return True

    async def arrives(self, run: ClaimedRun) -> bool:
        """Wait for a create that may still be on its way; whether it has come. Who gives up a run without asking this
        would leave a pod behind that nobody knows."""
        until = time.monotonic() + (releases.TOMBSTONE_SECONDS if run.run in self._doubtful else 0)
        while run.run not in self._pods and self._applications.get(run.run) is None:
            if time.monotonic() >= until:
                self._doubtful.discard(run.run)
                return False
            await asyncio.sleep(ARRIVAL_SECONDS)
        return await self.adopt(run)

    async def ended(self) -> Ended:
        """Wait for the next run to end. Each run that was started or adopted is returned once."""
        end = await self._ends.get()
        if isinstance(end, BaseException):
            raise end
        return end

    async def kill(self, run: int, *, cancelled: bool) -> None:
        """Delete the run's pod, with its own grace period; its end arrives at `ended`. Unknown runs are left alone."""
        known = self._runs.get(run)
        if known is not None and not known.reported:
            self._stop(known, CANCELLED if cancelled else _LEFT)

    async def release(self, name: str) -> None:
        """Let the pod of a run go whose outcome is committed. It is done soon, and again until it is done."""
        found = (run for run, pod in self._pods.items() if pod.name == name)
        run = next(found, None) or next((run for run, known in self._runs.items() if known.name == name), None)
        if run is not None:
            self._let_go(run)

    async def close(self) -> None:
        """Stop watching. Pods go on, and what is not released yet is released by who comes next."""
        await self._releases.finish()
        await self._applications.finish()
        for future in self._futures:
            future.cancel()
        await asyncio.gather(*self._futures, return_exceptions=True)

    # -- for whoever runs the engine -------------------------------------------------------------------------

    def strangers(self) -> tuple[int, ...]:
        """Runs whose pods are here though nobody has started or adopted them: their outcome may be committed."""
        here = {run for run, pod in self._pods.items() if not pod.gone}.union(self._applications.runs())
        return tuple(here - self._runs.keys())

    async def release_ended(self, runs: Collection[int]) -> None:
        """Let the pods of runs go that are known to have ended in Postgres: a process ended before it could."""
        for run in runs:
            if run not in self._runs:
                self._let_go(run)

    async def sweep(self) -> None:
        """Delete pods that were released a minute or two ago; their names must not be free earlier."""
        await self._releases.sweep()
        await self._applications.sweep()

    def hindered(self) -> dict[int, tuple[Reason, str]]:
        """Why the pods of living runs don't run although they should by now."""
        found = {run: self._hindrance(run, self._clock()) for run in self._runs}
        return {run: why for run, why in found.items() if why is not None}

    def _hindrance(self, run: int, now: float) -> tuple[Reason, str] | None:
        pod, application = self._pods.get(run), self._applications.get(run)
        if application is not None:
            return what_hinders_application(application, pod, now)
        return None if pod is None else what_hinders(pod, now)

    # -- watching --------------------------------------------------------------------------------------------

    def _view(self, namespace: str) -> _View | None:
        """What sees a namespace; None where nothing does."""
        return self._views.get(namespace) or self._views.get(None)

    def _may_have(self, run: ClaimedRun) -> list[_View]:
        """Where the pod of a run can be: where its job was at the claim, or anywhere where that is not known."""
        if not run.runs_home:
            return list(self._views.values())
        return [self._view(run.runs_home) or _View(run.runs_home)]  # one that nobody fills

    async def _follow(self, view: _View) -> None:
        follower = Follower(self._api, PODS, pod_seen, note=self._note, namespace=view.namespace, selector=self._ours)
        async for change in follower.changes():
            self._take(view, change)

    def _take(self, view: _View, change: Change[PodSeen]) -> None:
        if change.happening is Happening.LISTING:
            view.listed = set()
        elif change.happening is Happening.SYNCED:
            self._forget_unlisted(view)
            view.synced.set()
        elif change.what is not None and change.what.run is not None:
            if change.happening is Happening.LISTED and view.listed is not None:
                view.listed.add(change.what.run)
            gone = change.happening is Happening.DELETED
            self._remember(change.what.run, replace(change.what, gone=True) if gone else change.what)

    def _remember(self, run: int, pod: PodSeen) -> None:
        if pod.done is not None:
            self._releases.seen(pod)
            if run not in self._runs:
                self._pods.pop(run, None)
                return
        known = self._pods.get(run)
        if known is not None and known.uid != pod.uid:
            if pod.gone or (known.namespace, known.name) != (pod.namespace, pod.name):
                return  # somebody's copy with our labels
            pod = replace(known, gone=True)  # another one has the name, so ours is gone
        elif known is not None and ended_by_itself(known):
            # The run may be judged only after its pod was deleted, in the same second.
            pod = replace(pod, by_itself=True)
        self._pods[run] = pod
        self._look_at(run)

    def _forget_unlisted(self, view: _View) -> None:
        """What was seen before a list and is not in it is gone."""
        listed, view.listed = view.listed or set(), None
        for run in [run for run, pod in self._pods.items() if run not in listed and view.has(pod)]:
            if run in self._runs:
                self._remember(run, replace(self._pods[run], gone=True))
            else:
                del self._pods[run]

    # -- judging ---------------------------------------------------------------------------------------------

    def _look_at(self, run: int, *, node_gone: bool = False) -> None:
        known = self._runs.get(run)
        if known is None or known.reported:
            return
        verdict = self._verdict(known, node_gone=node_gone)
        if isinstance(verdict, Stop):
            self._stop(known, verdict.outcome)
        elif verdict is not None:
            known.reported = True
            self._spawn(self._report(run, self._pods.get(run, _NO_POD), verdict), f"report of run {run}")

    def _verdict(self, known: _Run, *, node_gone: bool) -> Outcome | Stop | None:
        pod, application, now = self._pods.get(known.run), self._applications.get(known.run), self._clock()
        if application is not None:
            return judge_application(application, pod, now, stopped=known.stopped, node_gone=node_gone)
        return None if pod is None else judge_pod(pod, now, stopped=known.stopped, node_gone=node_gone)

    async def _report(self, run: int, pod: PodSeen, outcome: Outcome) -> None:
        log = "" if outcome.succeeded else await self._log(pod)
        outcome = with_last_line(outcome, pod, log)
        self._ends.put_nowait(
            Ended(
                run=run,
                exit_code=outcome.exit_code,
                cancelled=outcome.kind is OutcomeClass.CANCELLED,
                deadline_exceeded=outcome.kind is OutcomeClass.DEADLINE,
                lost=outcome.message if outcome.kind is OutcomeClass.INFRASTRUCTURE else None,
                log_tail=log,
                outcome=outcome,
                report=(pod.ended and read_report(pod.ended.message)) or Report(),
                pod_uid=pod.uid or None,
                node=pod.node,
                at=pod.ended.finished_at if pod.ended is not None else None,
            )
        )

    async def _log(self, pod: PodSeen) -> str:
        """Return the end of the log of what has failed; nothing where it may not be kept, or can't be had any more."""
        if not pod.keep_log:
            return ""
        container = pod.main
        if pod.ended is None and pod.failed_init is not None:
            container = pod.failed_init[0]
        elif pod.gone or not (pod.started or pod.ended):
            return ""
        try:
            async with self._logs, asyncio.timeout(LOG_SECONDS):
                return await self._api.log_tail(pod.namespace, pod.name, container, size=LOG_TAIL)
        except (DataflowError, TimeoutError):
            return ""

    async def _tick(self) -> None:
        """Look at what only time changes: starts that are late, and pods that should have ended."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            gone: dict[str, bool] = {}
            for known in list(self._runs.values()):
                if known.reported:
                    continue
                self._delete_stopped(known)
                pod = self._pods.get(known.run)
                if pod is not None and self._is_late(pod):
                    node = pod.node or ""
                    gone[node] = gone[node] if node in gone else await self._node_gone(node)
                    self._look_at(known.run, node_gone=gone[node])
                elif pod is None or not pod.started or self._applications.get(known.run) is not None:
                    self._look_at(known.run)

    def _is_late(self, pod: PodSeen) -> bool:
        """Whether a pod should have ended by its node long ago."""
        deleted = pod.node is not None and pod.deleted_at is not None
        return deleted and self._clock() > (pod.deleted_at or 0) + pod.grace + LATE_SECONDS

    async def _node_gone(self, node: str) -> bool:
        """Whether a node is certainly no part of the cluster. Where it may not be asked for, nobody knows."""
        try:
            await self._api.get(NODES, None, node)
        except ClusterRefused as error:
            return error.code == 404
        except ClusterUnreachable:
            return False
        return False

    # -- ending ----------------------------------------------------------------------------------------------

    def _stop(self, known: _Run, outcome: Outcome) -> None:
        if known.stopped is None or outcome is CANCELLED:  # a person's word counts more than a deadline
            known.stopped = outcome
        self._delete_stopped(known)

    def _delete_stopped(self, known: _Run) -> None:
        """Delete the pod of a run that has to stop, unless that was done; the timer comes back to it."""
        if known.stopped is None or known.deleting:
            return
        application, pod = self._applications.get(known.run), self._pods.get(known.run)
        both: tuple[tuple[Resource, PodSeen | ApplicationSeen | None], ...] = (APPLICATIONS, application), (PODS, pod)
        found = [(kind, each) for kind, each in both if each is not None and each.deleted_at is None and not each.gone]
        if found:
            known.deleting = True
            self._spawn(self._delete(known, found), f"stop of run {known.run}")

    async def _delete(self, known: _Run, found: Sequence[tuple[Resource, PodSeen | ApplicationSeen]]) -> None:
        """Delete what there is of a run, and nothing else of its name."""
        for resource, seen in found:
            try:
                await self._api.delete(resource, seen.namespace, seen.name, uid=seen.uid)
            except ClusterUnreachable:
                break
            except ClusterRefused as error:
                if is_not_there(error):
                    self._is_gone(known.run, seen)
                elif error.code != 409:
                    if not known.refused:
                        self._note(f"run {known.run} can't be stopped, and it is tried again: {error}")
                    known.refused = True
        known.deleting = False

    def _is_gone(self, run: int, seen: PodSeen | ApplicationSeen) -> None:
        if isinstance(seen, PodSeen):
            self._remember(run, replace(self._pods.get(run, seen), gone=True))
        else:
            self._applications.gone(run)

    def _let_go(self, run: int) -> None:
        known = self._runs.pop(run, None)
        self._applications.let_go(run)
        pod = self._pods.pop(run, None)
        if pod is not None and not pod.gone:
            self._releases.add(pod, sure=known is not None and known.sure)

    # -- background -----------------------------------------------------------------------------------------------

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        future = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._futures.add(future)
        future.add_done_callback(self._done)

    def _done(self, future: "asyncio.Task[None]") -> None:
        """Hand on an error: an end that is never reported would be waited for without an end."""
        self._futures.discard(future)
        if not future.cancelled() and (error := future.exception()) is not None:
            self._ends.put_nowait(error)
