"""Measure, and print one table: python -m tests.bench.operator [--quick] [--only operator,bare …]."""

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tests.bench.operator.contenders import bare, indexed_job
from tests.bench.operator.loads import Load, Measured, percentile
from tests.bench.operator.ours import OwnOperator
from tests.bench.operator.place import TUNED_QPS, Place, place

CONTENDERS = ("operator", "bare", "tuned", "default")
WARM_UP = 100
"""Pods before anything is measured: whoever comes first would pay for everything that a new cluster does once."""
QUICK = {"runs": 200, "long_runs": 20, "seconds": 3, "parallelism": 10, "chunks": 200, "live": 20}


@dataclass(frozen=True)
class Line:
    """A line of the table. `met`: None where there is no goal."""

    what: str
    value: str
    goal: str = ""
    met: bool | None = None

    def __str__(self) -> str:
        verdict = {None: "", True: "met", False: "MISSED"}[self.met]
        return f"{self.what:<66} {self.value:>12}   {self.goal:<10} {verdict}".rstrip()


@dataclass
class Results:
    """By contender. `held`, `most`: MiB of the operator with many live pods, and the most ever. `changed`: seconds."""

    short: dict[str, Measured]
    long: dict[str, Measured]
    held: float | None = None
    most: float | None = None
    changed: float | None = None


def main(arguments: list[str]) -> None:
    """Measure and print."""
    given = _parsed(arguments)
    with place(_say) as here:
        results = _measured(here, given)
    print(f"\n{given.runs} pods of no length, {given.long_runs} of {given.seconds} s, {given.parallelism} at a time\n")
    for line in [*_short(results.short), *_long(results.long), *_memory(results, given)]:
        print(line)
    print("\nCPU, ms a pod of no length")
    for who, measured in results.short.items():
        print(f"  {who:<10}{_per_pod(measured)}")


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.operator")
    parser.add_argument("--runs", type=int, default=2000, help="pods of no length")
    parser.add_argument("--long-runs", type=int, default=1000, help="pods of --seconds; 0: none")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--parallelism", type=int, default=50)
    parser.add_argument("--chunks", type=int, default=10000, help="of the job whose pods live at the same time")
    parser.add_argument("--live", type=int, default=1000, help="pods that live at the same time; 0: none")
    parser.add_argument("--only", default=",".join(CONTENDERS), help="who is measured: %(default)s")
    parser.add_argument("--repeat", type=int, default=1, help="how often the pods of no length are measured")
    parser.add_argument("--quick", action="store_true", help="a small one, to see that it works")
    if "--quick" in arguments:
        parser.set_defaults(**QUICK)
    given = parser.parse_args(arguments)
    given.only = given.only.split(",")
    if not set(given.only) <= set(CONTENDERS):
        parser.error(f"--only takes some of {', '.join(CONTENDERS)}")
    if "bare" in given.only and "operator" not in given.only:
        parser.error("bare sends what the operator has sent: name both")
    return given


def _measured(here: Place, given: argparse.Namespace) -> Results:
    """Those that are compared come one after the other, so that the machine is as busy with other things for all."""
    short = Load(given.runs, 0, given.parallelism)
    long = Load(given.long_runs, given.seconds, given.parallelism)
    results = Results({}, {})
    jobs, loop = here.namespace("bench-job"), here.namespace("bench-bare")
    with OwnOperator(here) as operator:
        operator.work("warm-up", replace(short, pods=min(short.pods, WARM_UP)))
        for number in range(given.repeat):
            found = results.short
            if "operator" in given.only:
                _keep(found, "operator", operator.work(f"short-{number}", short))
            if "bare" in given.only:
                _keep(found, "bare", bare(here, loop, short, operator.manifests("short-0", loop)))
            if "tuned" in given.only:
                _keep(found, "tuned", indexed_job(here, jobs, f"short-{number}", short))
        if given.long_runs and "operator" in given.only:
            _keep(results.long, "operator", operator.work("long", long))
        if given.long_runs and "tuned" in given.only:
            _keep(results.long, "tuned", indexed_job(here, jobs, "long", long))
        if given.live and "operator" in given.only:
            results.held, results.changed = operator.live("live", given.chunks, given.live)
            results.most = operator.memory[1]
            _say(f"operator: {results.held:.0f} MiB with {given.live} live pods, {results.most:.0f} MiB at most")
    if "default" in given.only:
        here.empty(operator.namespace)
        here.tune(None)
        _keep(results.short, "default", indexed_job(here, jobs, "short-default", short))
        if given.long_runs:
            _keep(results.long, "default", indexed_job(here, jobs, "long-default", long))
        here.tune(TUNED_QPS)
    return results


def _keep(found: dict[str, Measured], who: str, measured: Measured) -> None:
    """Say what was measured; of repeated measurements the best is kept, as others have disturbed it least."""
    load = measured.load
    _say(f"{who}: {load.pods} of {load.seconds} s in {measured.makespan:.1f} s, {measured.rate:.0f} a minute")
    if measured.late:
        _say(f"  late: {', '.join(f'{percentile(measured.late, share):.3f}' for share in (0.5, 0.9, 0.99, 1))} s")
    _say(f"  CPU, ms a pod: {_per_pod(measured)}")
    if who not in found or measured.makespan < found[who].makespan:
        found[who] = measured


def _per_pod(measured: Measured) -> str:
    spent = sorted(measured.cpu, key=lambda name: -measured.cpu[name])
    whole = sum(measured.cpu.values()) / measured.load.pods * 1000
    return f"{whole:.1f}: {', '.join(f'{name} {measured.per_pod(name):.1f}' for name in spent)}"


_NAMES = {
    "operator": "operator",
    "bare": "the same API calls by a plain loop",
    "tuned": f"Indexed Job, {TUNED_QPS} requests a second",
    "default": "Indexed Job, as it is by default",
}


def _short(found: Mapping[str, Measured]) -> Iterator[Line]:
    for who in (name for name in _NAMES if name in found):
        yield Line(f"no length, a minute: {_NAMES[who]}", f"{found[who].rate:.0f}")
    ours = found.get("operator")
    if ours is None:
        return
    for who, least in (("tuned", 1.2), ("default", None), ("bare", 0.8)):
        if who in found:
            share = ours.rate / found[who].rate
            goal, met = ("", None) if least is None else (f">= {least}", share >= least)
            yield Line(f"  the operator's share of it: {_NAMES[who]}", f"{share:.2f}", goal, met)
    cpu = ours.per_pod("operator")
    yield Line("operator's CPU a run, ms", f"{cpu:.1f}", "<= 10", cpu <= 10)
    usual, late = percentile(ours.late, 0.5), percentile(ours.late, 0.99)
    yield Line("from the status of an ended pod to the commit, p50, s", f"{usual:.3f}")
    yield Line("from the status of an ended pod to the commit, p99, s", f"{late:.3f}", "< 1", late < 1)


def _long(found: Mapping[str, Measured]) -> Iterator[Line]:
    for who in (name for name in _NAMES if name in found):
        measured = found[who]
        share = measured.makespan / measured.load.ideal
        goal, met = ("<= 1.03", share <= 1.03) if who == "operator" else ("", None)
        yield Line(f"{measured.load.seconds} s, makespan in s: {_NAMES[who]}", f"{measured.makespan:.1f}")
        yield Line(f"  of the ideal {measured.load.ideal:.0f} s", f"{share:.3f}", goal, met)
    if "operator" in found:
        late = percentile(found["operator"].late, 0.99)
        yield Line("  from the status of an ended pod to the commit, p99, s", f"{late:.3f}", "< 1", late < 1)


def _memory(results: Results, given: argparse.Namespace) -> Iterator[Line]:
    if results.held is None or results.most is None or results.changed is None:
        return
    held, changed = results.held, results.changed
    what = f"operator's memory, {given.chunks} chunks, {given.live} live pods, MiB"
    yield Line(what, f"{held:.0f}", "<= 120", held <= 120)
    yield Line("  the most it ever held, MiB", f"{results.most:.0f}")
    yield Line("from a patch of parallelism to the first pod, the longest, s", f"{changed:.2f}", "< 2", changed < 2)


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
