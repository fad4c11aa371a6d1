"""The launcher of runs as pods or SparkApplications: creates them, reports their ends and releases them. Implements
`engine.ports.Launcher`.

    start: POST -> registered ---------------------.
    adopt: seen already -> registered -------------|
                                                   v
    one watch of all pods of this engine -> facts of each pod -> judge -> still running: wait for the next fact
    a timer: deadlines, deleted nodes ------------------^               -> has to stop: delete it, once
                                                                        -> outcome: log tail if failed -> `ended`
    release: one patch removes the finalizer and sets the label `done` -> deleted a minute or two later

The runs of SparkApplications take the same path; the launcher sees the application and the pod of its driver. Memory
holds a few facts for each live pod, never the pod itself. A run whose pod was never seen is never judged: its create
may still arrive. Labels select what is watched; core/kubernetes/run_identity.py decides what belongs to a run. This
module never claims or commits anything.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from opendataflow import names
from opendataflow.core.kubernetes.application_outcome import find_application_problem, judge_application
from opendataflow.core.kubernetes.pod_outcome import (
    CANCELLED,
    ended_by_itself,
    find_pod_problem,
    judge_pod,
    with_last_line,
)
from opendataflow.core.kubernetes.run_identity import Match, match_driver, match_object
from opendataflow.core.pipelines.report import read_report
from opendataflow.errors import (
    ClusterRefused,
    ClusterUnreachable,
    CreateUncertain,
    DataflowError,
    NoRights,
)
from opendataflow.launch.cluster import releases
from opendataflow.launch.cluster.answers import is_gone
from opendataflow.launch.cluster.api import APPLICATIONS, NODES, PODS, Api, Resource, selector
from opendataflow.launch.cluster.applications import Applications, is_application
from opendataflow.launch.cluster.creating import create_or_find
from opendataflow.launch.cluster.namespace_view import NamespaceView
from opendataflow.launch.cluster.seen import parse_pod
from opendataflow.launch.cluster.sightings import Foreigners, LostRuns, Sightings
from opendataflow.launch.cluster.watch import Change, ChangeKind, Follower
from opendataflow.model.records.application import ObservedApplication
from opendataflow.model.records.claim import ClaimedRun
from opendataflow.model.records.pod import ObservedPod, Orphan, PodOrder, RunIdentity, Stop, StoredRun
from opendataflow.model.records.run import Ended, Host, Outcome, Report
from opendataflow.names import OutcomeClass, Reason

LOG_TAIL = 64 * 1024
LOGS_AT_ONCE = 8
LOG_SECONDS = 10.0
"""The timeout for the log of a failed run. The outcome must not wait for a node that does not answer."""
TICK_SECONDS = 5.0
ARRIVAL_SECONDS = 0.5
"""The interval between two checks for a pod whose create may still arrive."""
LATE_SECONDS = 10.0
"""How long after its grace period a deleted pod is overdue, so that its node is checked."""
_STOPPED_BY_OPERATOR = Outcome(OutcomeClass.INFRASTRUCTURE, "stopped by the operator")
_NO_POD = ObservedPod("", "", "")
"""Stands for the pod of a run that ended without one that was ever seen."""


@dataclass
class _Run:
    """A run that has not ended.

    `certain`: no other create of its pod is under way. `stopped`: why its pod is deleted. `deleting`: a delete request
    is under way. `refused`: a delete request was refused and reported. `reported`: its end is being reported.
    """

    run: int
    certain: bool = False
    stopped: Outcome | None = None
    deleting: bool = False
    refused: bool = False
    reported: bool = False


class ClusterLauncher:
    """The launcher of one engine. `engine`: the identity of its database, which is a label of its pods.

    `note`: shows a message to people. `foreign`: called with the kind of each foreign object. `namespaces`: each is
    watched by a watch of its own; empty means one watch of all namespaces. `clock`: seconds since the epoch.
    """

    def __init__(
        self,
        api: Api,
        engine: str,
        *,
        note: Callable[[str], None],
        foreign: Callable[[str], None] = lambda _: None,
        namespaces: Collection[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._api = api
        self._engine = engine
        self._note = note
        self._clock = clock
        self._views: dict[str | None, NamespaceView] = {
            where: NamespaceView(where) for where in sorted(namespaces) or (None,)
        }
        self._ours = selector({names.LABEL_ENGINE: engine})
        foreigners = Foreigners(foreign, note)
        self._sightings: Sightings[ObservedPod] = Sightings(PODS, self._match, foreigners)
        self._pods: dict[int, ObservedPod] = {}
        """The pods that have matched a run."""
        self._runs: dict[int, _Run] = {}
        self._lost_runs = LostRuns()
        self._orphans: dict[int, Orphan] = {}
        """The orphans, by the number of their lost run."""
        self._ended_orphans: list[Orphan] = []
        self._uncertain: set[int] = set()
        """Runs whose create may still arrive, from this process or from an earlier one."""
        self._ends: asyncio.Queue[Ended | BaseException] = asyncio.Queue()
        self._logs = asyncio.Semaphore(LOGS_AT_ONCE)
        self._releases = releases.pod_releases(api, note=note, clock=clock)
        self._applications = Applications(
            api, engine, self._application_changed, self._spawn, foreigners, self._lost_runs, note=note, clock=clock
        )
        self._futures: set[asyncio.Task[None]] = set()

    # -- engine.ports.Launcher -------------------------------------------------------------------------------

    @property
    def host(self) -> Host:
        """Return a name for the cluster. Pods outlive the process that created them."""
        return Host("kubernetes", self._engine)

    @property
    def runs_home(self) -> str:
        """Return an empty text: pods are in the namespaces of their jobs."""
        return ""

    def begin(self) -> None:
        """Start to watch. `synced` returns when all existing objects have been seen."""
        self._spawn(self._tick(), "deadlines of the run pods")
        self._releases.begin(self._spawn)
        self._applications.begin()
        for where, view in self._views.items():
            if view.closed is None:
                self.open_namespace(where)

    def open_namespace(self, namespace: str | None) -> None:
        """Allow starts in a namespace (None: in all), and watch it. `begin` does this for namespaces that are open."""
        view = self._views[namespace]
        view.closed = None
        if not view.followed:
            view.followed = True
            self._spawn(self._follow(view), f"watch of the run pods in {namespace or 'all namespaces'}")
            self._applications.open_namespace(namespace)

    def close_namespace(self, namespace: str | None, why: str) -> None:
        """Start no run in a namespace (None: in any), because rights are missing. `why`: the sentence for people.

        Known pods are still watched and released, as far as the cluster allows it. A namespace that was never open is
        not watched.
        """
        self._views[namespace].closed = why

    async def synced(self) -> None:
        """Wait until all pods and SparkApplications of this engine have been seen once, except in closed namespaces."""
        for view in self._views.values():
            if view.closed is None:
                await self._wait_synced(view)

    async def _wait_synced(self, view: NamespaceView) -> None:
        await view.synced.wait()
        await self._applications.synced(view.namespace)

    async def start(self, order: PodOrder) -> None:
        """Create the pod or SparkApplication of a run, or find the existing one.

        Raises CreateUncertain, Backpressure, NotCreatable, NamespaceGone or NoRights. A second call is always safe.
        """
        if order.run in self._runs:
            return
        view = self._view(order.namespace)
        if view is not None and view.closed is not None:
            raise NoRights(view.closed)
        self._expect(order.identity)
        try:
            if is_application(order):
                await self._applications.create(order)
            else:
                seen = await create_or_find(self._api, PODS, order, parse_pod, self._match, releases.keep_pod)
                self._sightings.pin(order.run, seen)
                if order.run not in self._pods or self._pods[order.run].uid != seen.uid:
                    self._pods[order.run] = seen  # otherwise the watch may have seen a newer state
                if view is not None and view.listed is not None:  # a list that began before does not contain it
                    view.listed.add(seen.uid)
        except CreateUncertain:
            self._uncertain.add(order.run)
            raise
        self._runs[order.run] = _Run(order.run, certain=order.run not in self._uncertain)
        self._uncertain.discard(order.run)
        self._judge(order.run)

    async def adopt(self, run: ClaimedRun) -> bool:
        """Watch a run that an earlier process has created. Return False if none of its objects has been seen.

        False proves nothing: a create may still arrive. The engine then calls `start`, with the same name. This call
        waits until all namespaces that may have the pod have been seen. That takes as long as rights are missing there,
        and never ends for a namespace that this operator does not manage.
        """
        self._expect(run.identity(run.runs_home))
        for view in self._views_of(run):
            if run.run in self._pods and self._pods[run.run].main == names.MAIN_CONTAINER:
                break
            await self._wait_synced(view)
        if run.run in self._runs:
            return True
        await self._protect(run.run)
        if run.run not in self._pods and self._applications.get(run.run) is None:
            self._uncertain.add(run.run)
            return False
        self._runs[run.run] = _Run(run.run)
        self._judge(run.run)
        return True

    async def wait_for_late_start(self, run: ClaimedRun) -> bool:
        """Wait for a create that may still arrive, and return whether it did.

        Without this call, giving up a run could leave a pod behind that no process knows.
        """
        self._expect(run.identity(run.runs_home))
        until = time.monotonic() + (releases.TOMBSTONE_SECONDS if run.run in self._uncertain else 0)
        while run.run not in self._pods and self._applications.get(run.run) is None:
            if time.monotonic() >= until:
                self._uncertain.discard(run.run)
                return False
            await asyncio.sleep(ARRIVAL_SECONDS)
        return await self.adopt(run)

    async def ended(self) -> Ended:
        """Wait for the next end. Each started or adopted run is returned once."""
        end = await self._ends.get()
        if isinstance(end, BaseException):
            raise end
        return end

    async def kill(self, run: int, *, cancelled: bool) -> None:
        """Delete the pod of a run, with its own grace period. `ended` returns its end. Ignore unknown runs."""
        known = self._runs.get(run)
        if known is not None and not known.reported:
            self._stop(known, CANCELLED if cancelled else _STOPPED_BY_OPERATOR)

    async def release(self, run: ClaimedRun) -> None:
        """Release the pod of a run whose outcome is committed. It is done in the background and retried."""
        self._release(run.run)

    async def close(self) -> None:
        """Stop watching. Pods go on. The next process releases the pods that are not released yet."""
        await self._releases.finish()
        await self._applications.finish()
        for future in self._futures:
            future.cancel()
        await asyncio.gather(*self._futures, return_exceptions=True)

    # -- for the operator ------------------------------------------------------------------------------------

    def unknown_runs(self) -> tuple[int, ...]:
        """Return runs that objects name, but that were neither started nor adopted. Their outcome may be committed."""
        return tuple(self._sightings.unknown_runs() | self._applications.unknown_runs())

    def orphans(self, asked: Collection[int], stored: Mapping[int, StoredRun]) -> list[Orphan]:
        """Return objects of runs that Postgres does not know, and that are not recognized yet. They may still write.

        `asked`, `stored`: as in `settle`. A run that Postgres has with another nonce is another run.
        """
        pods = [pod for pod in self._sightings.lost(asked, stored) if pod.main == names.MAIN_CONTAINER]
        found = [*self._applications.orphans(asked, stored), *releases.orphans_in(pods, self._releases)]
        return [each for each in found if each.identity not in self._lost_runs]

    @property
    def lists_all(self) -> bool:
        """Return whether all objects of all namespaces have been seen. Where rights are missing, none are."""
        return all(
            view.closed is None and view.synced.is_set() and self._applications.has_synced(view.namespace)
            for view in self._views.values()
        )

    def recognize_orphan(self, orphan: Orphan) -> None:
        """Recognize the objects of an orphan from now on. Its chunk is recorded: nothing of it is claimed."""
        if orphan.identity not in self._lost_runs:
            run = self._lost_runs.add(orphan.identity)
            self._orphans[run.run] = orphan
            self._expect(run)
            for pod in self._sightings.open_of(orphan.identity):  # such as the driver of an application
                self._see(pod)

    async def end_orphan(self, orphan: Orphan) -> None:
        """Delete a recognized orphan, with its own grace period. `ended_orphans` returns it when none of its containers
        runs."""
        run = self._lost_runs.number(orphan.identity)
        await self._protect(run)
        known = self._runs[run] = _Run(run)
        if run not in self._pods and self._applications.get(run) is None:
            self._ended_orphans.append(orphan)  # it was deleted meanwhile
        else:
            self._judge(run)
            if not known.reported:
                self._stop(known, _STOPPED_BY_OPERATOR)

    def ended_orphans(self) -> list[Orphan]:
        """Return the orphans that have ended and are not released."""
        return list(self._ended_orphans)

    def release_orphan(self, orphan: Orphan) -> None:
        """Release an orphan, whose chunk may be claimed now."""
        self._ended_orphans.remove(orphan)
        run = self._lost_runs.remove(orphan.identity)
        self._orphans.pop(run)
        self._release(run)

    async def settle(self, asked: Collection[int], stored: Mapping[int, StoredRun]) -> None:
        """Release the objects of runs that have ended in Postgres, and delete them later; count foreign objects.

        `asked`: the runs that Postgres was asked for. `stored`: those that it has. An earlier process has ended before
        it released these objects, or before it deleted them.
        """
        for pod in self._sightings.settle(asked, stored, by_uid=True):
            self._releases.take_over(pod)
        self._applications.settle(asked, stored)

    async def sweep(self) -> None:
        """Delete pods that were released a minute or two ago. Their names must not be free earlier.

        Also find foreign pods that were seen before the run that they name was claimed.
        """
        for pod in self._sightings.open_of_expected_runs():
            self._see(pod)
        await self._releases.sweep()
        await self._applications.sweep()

    def pod_problems(self) -> dict[int, tuple[Reason, str]]:
        """Return, by run, why pods do not run although they should by now: a reason and a sentence."""
        found = {run: self._pod_problem(run, self._clock()) for run in self._runs}
        return {run: why for run, why in found.items() if why is not None}

    def _pod_problem(self, run: int, now: float) -> tuple[Reason, str] | None:
        pod, application = self._pods.get(run), self._applications.get(run)
        if application is not None:
            return find_application_problem(application, pod, now)
        return None if pod is None else find_pod_problem(pod, now)

    # -- watching --------------------------------------------------------------------------------------------

    def _view(self, namespace: str) -> NamespaceView | None:
        """Return the view that covers a namespace; None if it is not watched."""
        return self._views.get(namespace) or self._views.get(None)

    def _views_of(self, run: ClaimedRun) -> list[NamespaceView]:
        """Return the views that may see the pod of a run: of its namespace at the claim, or all if it is unknown."""
        if not run.runs_home:
            return list(self._views.values())
        return [self._view(run.runs_home) or NamespaceView(run.runs_home)]  # a view that is never synced

    async def _follow(self, view: NamespaceView) -> None:
        follower = Follower(self._api, PODS, parse_pod, note=self._note, namespace=view.namespace, selector=self._ours)
        async for change in follower.changes():
            self._apply(view, change)

    def _apply(self, view: NamespaceView, change: Change[ObservedPod]) -> None:
        if change.kind is ChangeKind.LISTING:
            view.listed = set()
        elif change.kind is ChangeKind.SYNCED:
            self._forget_unlisted(view)
            view.synced.set()
        elif change.object is not None:
            if change.kind is ChangeKind.LISTED and view.listed is not None:
                view.listed.add(change.object.uid)
            self._see(replace(change.object, gone=True) if change.kind is ChangeKind.DELETED else change.object)

    def _see(self, pod: ObservedPod) -> None:
        """Handle a state of a pod with our labels, whoever has created it."""
        if self._releases.owns(pod):
            return
        pod = self._lost_runs.renumbered(pod)
        run = self._sightings.take(pod)
        if run is not None:
            self._update(run, pod)

    def _update(self, run: int, pod: ObservedPod) -> None:
        known = self._pods.get(run)
        if known is not None and known.uid == pod.uid and ended_by_itself(known):
            # The run may be judged only after its pod was deleted, in the same second.
            pod = replace(pod, by_itself=True)
        self._pods[run] = pod
        self._judge(run)

    def _forget_unlisted(self, view: NamespaceView) -> None:
        """Treat known pods that a list does not contain as deleted."""
        listed, view.listed = view.listed or set(), None
        self._sightings.forget_unlisted(listed, view.covers)
        for run in [run for run, pod in self._pods.items() if pod.uid not in listed and view.covers(pod.namespace)]:
            if run in self._runs:
                self._update(run, replace(self._pods[run], gone=True))
            else:  # it is being created
                del self._pods[run]
                self._sightings.unpin(run)

    # -- matching --------------------------------------------------------------------------------------------

    def _match(self, pod: ObservedPod, run: RunIdentity) -> Match:
        if pod.main == names.MAIN_CONTAINER:
            return match_object(pod, run, self._engine)
        return match_driver(pod, self._applications.get(run.run), run, self._engine)

    def _expect(self, run: RunIdentity) -> None:
        """Recognize the objects of a run from now on, also those that were seen before."""
        self._sightings.expect(run)
        self._look_again(run.namespace, run.name)
        self._applications.expect(run)

    def _look_again(self, namespace: str, name: str) -> None:
        pod = self._sightings.open_at(namespace, name)
        if pod is not None:
            self._see(pod)

    def _application_changed(self, run: int) -> None:
        application = self._applications.get(run)
        if application is not None and application.driver is not None:
            self._look_again(application.namespace, application.driver)
        self._judge(run)

    async def _protect(self, run: int) -> None:
        """Put our finalizer back on the object of a run, which then matches. `opendataflow cleanup` removes it."""
        await self._applications.protect(run)
        while (pod := self._sightings.unprotected(run)) is not None:
            try:
                self._see(await releases.keep_pod(self._api, pod))
            except ClusterUnreachable:
                await asyncio.sleep(releases.RETRY_SECONDS)
            except ClusterRefused:  # it is being deleted: `start` waits until it is gone
                return

    # -- judging ---------------------------------------------------------------------------------------------

    def _judge(self, run: int, *, node_gone: bool = False) -> None:
        known = self._runs.get(run)
        if known is None or known.reported:
            return
        verdict = self._verdict(known, node_gone=node_gone)
        if isinstance(verdict, Stop):
            self._stop(known, verdict.outcome)
        elif verdict is not None:
            known.reported = True
            if run in self._orphans:
                self._ended_orphans.append(self._orphans[run])
                return
            self._spawn(self._report(run, self._pods.get(run, _NO_POD), verdict), f"report of run {run}")

    def _verdict(self, known: _Run, *, node_gone: bool) -> Outcome | Stop | None:
        pod, application, now = self._pods.get(known.run), self._applications.get(known.run), self._clock()
        if application is not None:
            return judge_application(application, pod, now, stopped=known.stopped, node_gone=node_gone)
        return None if pod is None else judge_pod(pod, now, stopped=known.stopped, node_gone=node_gone)

    async def _report(self, run: int, pod: ObservedPod, outcome: Outcome) -> None:
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

    async def _log(self, pod: ObservedPod) -> str:
        """Return the end of the log of the failed container; an empty text if it is not kept or not available."""
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
        """Check deadlines that pass without an event: late starts, and deleted pods that have not ended."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            gone: dict[str, bool] = {}
            for known in list(self._runs.values()):
                if known.reported:
                    continue
                self._delete_stopped(known)
                pod = self._pods.get(known.run)
                if pod is not None and self._is_overdue(pod):
                    node = pod.node or ""
                    gone[node] = gone[node] if node in gone else await self._node_gone(node)
                    self._judge(known.run, node_gone=gone[node])
                elif pod is None or not pod.started or self._applications.get(known.run) is not None:
                    self._judge(known.run)

    def _is_overdue(self, pod: ObservedPod) -> bool:
        """Return whether the node of a deleted pod should have ended it some time ago."""
        deleted = pod.node is not None and pod.deleted_at is not None
        return deleted and self._clock() > (pod.deleted_at or 0) + pod.grace + LATE_SECONDS

    async def _node_gone(self, node: str) -> bool:
        """Return whether a node is certainly deleted. Return False if that is unknown, for example without rights."""
        try:
            await self._api.get(NODES, None, node)
        except ClusterRefused as error:
            return error.code == 404
        except ClusterUnreachable:
            return False
        return False

    # -- ending ----------------------------------------------------------------------------------------------

    def _stop(self, known: _Run, outcome: Outcome) -> None:
        if known.stopped is None or outcome is CANCELLED:  # a cancellation by a person replaces a deadline
            known.stopped = outcome
        self._delete_stopped(known)

    def _delete_stopped(self, known: _Run) -> None:
        """Delete the pod of a run that has to stop, unless it is deleted already. The timer repeats this."""
        if known.stopped is None or known.deleting:
            return
        application, pod = self._applications.get(known.run), self._pods.get(known.run)
        both: tuple[tuple[Resource, ObservedPod | ObservedApplication | None], ...] = (
            (APPLICATIONS, application),
            (PODS, pod),
        )
        found = [(kind, each) for kind, each in both if each is not None and each.deleted_at is None and not each.gone]
        if found:
            known.deleting = True
            self._spawn(self._delete(known, found), f"stop of run {known.run}")

    async def _delete(self, known: _Run, found: Sequence[tuple[Resource, ObservedPod | ObservedApplication]]) -> None:
        """Delete the objects of a run, by uid, so that no other object of the same name is deleted."""
        for resource, seen in found:
            try:
                await self._api.delete(resource, seen.namespace, seen.name, uid=seen.uid)
            except ClusterUnreachable:
                break
            except ClusterRefused as error:
                if is_gone(error):
                    self._mark_gone(known.run, seen)
                elif error.code != 409:
                    if not known.refused:
                        self._note(f"{seen.namespace}/{seen.name} can't be stopped, and it is tried again: {error}")
                    known.refused = True
        known.deleting = False

    def _mark_gone(self, run: int, seen: ObservedPod | ObservedApplication) -> None:
        if isinstance(seen, ObservedPod):
            self._update(run, replace(self._pods.get(run, seen), gone=True))
        else:
            self._applications.mark_gone(run)

    def _release(self, run: int) -> None:
        known = self._runs.pop(run, None)
        self._applications.release(run)
        self._sightings.forget(run)
        pod = self._pods.pop(run, None)
        if pod is not None and not pod.gone:
            self._releases.add(pod, certain=known is not None and known.certain)

    # -- background -----------------------------------------------------------------------------------------------

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        future = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._futures.add(future)
        future.add_done_callback(self._done)

    def _done(self, future: "asyncio.Task[None]") -> None:
        """Report an error through `ended`. Otherwise the engine would wait for an end forever."""
        self._futures.discard(future)
        if not future.cancelled() and (error := future.exception()) is not None:
            self._ends.put_nowait(error)
