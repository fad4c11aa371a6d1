"""Sentences about the forced runs behind a chunk. Pure: opendataflow.forced_runs_behind() finds them.

A forced run starts although inputs are not READY. Whatever is made from its outputs may be wrong, too.
"""

from opendataflow.core.status.evidence import Evidence, Facts
from opendataflow.core.text.explain import counted

FORCED = "a forced run is behind it"
_MOST_NAMED = 20
"""The number of forced runs that get a sentence each."""


def forced_evidence(behind: Facts) -> list[Evidence]:
    """Return a piece of evidence for each forced run behind a run, the nearest first."""
    forced = behind["forced"]
    found = [_evidence(one) for one in forced[:_MOST_NAMED]]
    if len(forced) > _MOST_NAMED:
        found.append(Evidence(f"and made from {counted(len(forced) - _MOST_NAMED, 'more chunk')} of forced runs"))
    if not behind["complete"]:
        found.append(Evidence("only the nearest versions behind it were searched for forced runs: there are too many"))
    return found


def doubt(behind: Facts) -> str | None:
    """Return why the data may be wrong, if a forced run behind it lacked an input. The nearest such run is named."""
    lacking = next((one for one in behind["forced"] if one["missing"] != []), None)
    if lacking is None:
        return None
    made = "made" if lacking["dataset"] is None else f"made from {_origin(lacking)}, which run {lacking['run']} wrote"
    return f"{made} by force {_without(lacking)}"


def _evidence(one: Facts) -> Evidence:
    who = f"run {one['run']} of job {one['job']}"
    if one["dataset"] is None:
        return Evidence(f"run {one['run']} was forced, {_without(one)}", who, one["at"])
    sentence = f"made from {_origin(one)}, which run {one['run']} of job {one['job']} wrote by force, {_without(one)}"
    return Evidence(sentence, who, one["at"], f"version {one['fence']}")


def _origin(one: Facts) -> str:
    return f"chunk {one['data_id']} of {one['dataset']}"


def _without(one: Facts) -> str:
    if one["missing"] is None:
        return "and it is not known which inputs it had"
    if not one["missing"]:
        return "although each of its inputs was READY"
    return f"without its {'input' if len(one['missing']) == 1 else 'inputs'} {', '.join(one['missing'])}"
