"""Sorts the objects with our labels that a watch reports: objects of known runs, of other runs, and foreign ones.

A foreign object has labels of a run and is not its object. It is counted and otherwise ignored: this program never
judges, releases or deletes it.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from opendataflow.core.kubernetes.run_identity import Identified, Match
from opendataflow.launch.cluster.api import Resource
from opendataflow.model.records.application import ObservedApplication
from opendataflow.model.records.pod import ObservedPod, RunIdentity, StoredRun

Key = tuple[str, str]
"""Namespace and name of an object."""


class Sighted(Identified, Protocol):
    """The facts of an object that can be sorted."""

    @property
    def gone(self) -> bool: ...


T = TypeVar("T", bound=Sighted)
S = TypeVar("S", ObservedPod, ObservedApplication)


class LostRuns:
    """Negative numbers for runs that Postgres has forgotten: a present run may have the same number."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, int | None, str | None], int] = {}
        self._last = 0

    def add(self, run: RunIdentity) -> RunIdentity:
        """Return what identifies the objects of a lost run from now on."""
        self._last -= 1
        self._numbers[run.namespace, run.run, run.nonce] = self._last
        return replace(run, run=self._last)

    def number(self, run: RunIdentity) -> int:
        """Return the number of a lost run that was added."""
        return self._numbers[run.namespace, run.run, run.nonce]

    def remove(self, run: RunIdentity) -> int:
        """Forget a lost run. Return its number."""
        return self._numbers.pop((run.namespace, run.run, run.nonce))

    def __contains__(self, run: RunIdentity) -> bool:
        return (run.namespace, run.run, run.nonce) in self._numbers

    def renumbered(self, seen: S) -> S:
        """Return an object of a lost run with the number of this run; any other object as it is."""
        number = self._numbers.get((seen.namespace, seen.run, seen.nonce))
        return seen if number is None else replace(seen, run=number)


class Foreigners:
    """Counts foreign objects. `count`: called with the kind of each object. `note`: shows a message to people.

    There is one message for each kind and namespace, because a user may create any number of such objects.
    """

    def __init__(self, count: Callable[[str], None], note: Callable[[str], None]) -> None:
        self._count = count
        self._note = note
        self._noted: set[tuple[str, str]] = set()

    def add(self, resource: Resource, seen: Sighted) -> None:
        """Count an object that was not counted before."""
        self._count(resource.plural)
        if (resource.plural, seen.namespace) not in self._noted:
            self._noted.add((resource.plural, seen.namespace))
            self._note(
                f"{seen.namespace}/{seen.name} has the labels of run {seen.run} and is not of that run: it is ignored. "
                f"Other {resource.plural} like it in {seen.namespace} are only counted, by "
                "opendataflow_foreign_objects_total"
            )


class Sightings(Generic[T]):
    """The objects of one kind. `match`: compares an object, whose uid is not known yet, with a run."""

    def __init__(self, resource: Resource, match: Callable[[T, RunIdentity], Match], foreigners: Foreigners) -> None:
        self._resource = resource
        self._match = match
        self._foreigners = foreigners
        self._expected: dict[int, RunIdentity] = {}
        self._uids: dict[int, str] = {}
        self._runs: dict[str, int] = {}
        self._open: dict[Key, T] = {}
        """Objects of runs that are not expected, and those that do not match their run yet."""
        self._foreign: dict[Key, str] = {}

    def expect(self, run: RunIdentity) -> None:
        """Record what identifies the object of a run."""
        self._expected[run.run] = run

    def pin(self, run: int, seen: T) -> None:
        """Record the object of a run. From now on, only its uid identifies it."""
        self.unpin(run)
        self._uids[run], self._runs[seen.uid] = seen.uid, run
        self._open.pop((seen.namespace, seen.name), None)

    def unpin(self, run: int) -> None:
        """Forget the object of a run, because it may not exist."""
        if (uid := self._uids.pop(run, None)) is not None:
            self._runs.pop(uid, None)

    def forget(self, run: int) -> None:
        """Expect no object of a run any more."""
        self.unpin(run)
        self._expected.pop(run, None)

    def take(self, seen: T) -> int | None:
        """Sort the present state of an object. Return the run if it is the object of an expected run.

        Later states of a known object need not match: its uid proves it, whatever somebody has changed.
        """
        if (run := self._runs.get(seen.uid)) is not None:
            return run
        key = (seen.namespace, seen.name)
        self._open.pop(key, None)
        expected = None if seen.run is None else self._expected.get(seen.run)
        if seen.gone:
            self._foreign.pop(key, None)
        elif self._foreign.get(key) == seen.uid and expected is None:
            pass
        elif seen.run is None:
            self._ignore(seen)
        elif expected is None:
            self._open[key] = seen
        else:
            return self._compare(seen, expected)
        return None

    def _compare(self, seen: T, run: RunIdentity) -> int | None:
        match = self._match(seen, run)
        is_free = run.run not in self._uids
        if match is Match.OURS and is_free:
            self.pin(run.run, seen)
            return run.run
        if match is Match.FOREIGN or not (is_free or match is Match.LOST):
            self._ignore(seen)
        else:
            self._open[seen.namespace, seen.name] = seen
        return None

    def _ignore(self, seen: T) -> None:
        key = (seen.namespace, seen.name)
        self._open.pop(key, None)
        if self._foreign.get(key) != seen.uid:
            self._foreign[key] = seen.uid
            self._foreigners.add(self._resource, seen)

    def open_at(self, namespace: str, name: str) -> T | None:
        """Return the object of this name that is not sorted yet."""
        return self._open.get((namespace, name))

    def open_of(self, run: RunIdentity) -> list[T]:
        """Return the objects that are not sorted and have the number and the nonce of a run."""
        own = (run.namespace, run.run, run.nonce)
        return [seen for seen in self._open.values() if (seen.namespace, seen.run, seen.nonce) == own]

    def open_of_expected_runs(self) -> list[T]:
        """Return the objects that are not sorted although their run is expected by now."""
        return [seen for seen in self._open.values() if seen.run in self._expected]

    def unprotected(self, run: int) -> T | None:
        """Return the object of an expected run if it lacks our finalizer."""
        expected = self._expected.get(run)
        seen = None if expected is None else self.open_at(expected.namespace, expected.name)
        if seen is None or expected is None or self._match(seen, expected) is not Match.UNPROTECTED:
            return None
        return seen

    def unknown_runs(self) -> set[int]:
        """Return the runs, by the labels of objects, that are not expected, or expected with another nonce."""
        return {seen.run for seen in self._open.values() if seen.run is not None and self._is_unknown(seen, seen.run)}

    def _is_unknown(self, seen: T, number: int) -> bool:
        expected = self._expected.get(number)
        return expected is None or self._match(seen, expected) is Match.LOST

    def lost(self, asked: Collection[int], stored: Mapping[int, StoredRun]) -> list[T]:
        """Return the objects of runs that Postgres does not have, or has with another nonce.

        `asked`: the runs that Postgres was asked for. `stored`: those that it has.
        """
        found = [(seen, seen.run) for seen in self._open.values() if seen.run is not None and seen.run in asked]
        return [seen for seen, run in found if run not in stored or stored[run].identity.nonce != seen.nonce]

    def settle(self, asked: Collection[int], stored: Mapping[int, StoredRun], *, by_uid: bool) -> list[T]:
        """Sort the objects of unknown runs with what Postgres stores. Return those of runs that have ended.

        `asked`: the runs that Postgres was asked for. `by_uid`: the stored uids are those of this kind of objects.
        """
        ended = []
        found = [seen for seen in self._open.values() if seen.run is not None and seen.run in asked]
        for seen in [seen for seen in found if self._is_unknown(seen, seen.run or 0)]:
            run = None if seen.run is None else stored.get(seen.run)
            if run is None or self._is_foreign(seen, run, by_uid=by_uid):
                self._ignore(seen)
            elif run.ended:
                del self._open[seen.namespace, seen.name]
                ended.append(seen)
        return ended

    def _is_foreign(self, seen: T, run: StoredRun, *, by_uid: bool) -> bool:
        if by_uid and run.pod_uid is not None:
            return seen.uid != run.pod_uid
        return self._match(seen, run.identity) in (Match.FOREIGN, Match.LOST)

    def forget_unlisted(self, listed: Collection[str], covers: Callable[[str], bool]) -> None:
        """Forget objects that a complete list does not contain. `listed`: uids. `covers`: namespaces of the list."""
        for key in [key for key, seen in self._open.items() if seen.uid not in listed and covers(key[0])]:
            del self._open[key]
        for key in [key for key, uid in self._foreign.items() if uid not in listed and covers(key[0])]:
            del self._foreign[key]
