"""Hypothesis strategies of custom resources: good ones, and ones with something wrong in them.

They are JSON, as a user's file becomes it. A wrong one is a good one with a value, a key or an item exchanged, so that
most of them are wrong in one place only.
"""

import copy
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from opendataflow.names import API_VERSION

Body = dict[str, Any]
Path = tuple[str | int, ...]

IDS = ("a", "flights", "2013-02-03", "1.0", "1.10", "Data Set é", "x" * 253, "password", "日本")
DURATIONS = ("10s", "5m", "1h30m", "1.5s", "2h1m0.5s", "0.001s", "999999h")
URLS = ("jdbc:postgresql://h/d?user=u", "s3a://bucket/path:with@signs", "gs://b/p", "file:///data/a:b@c", "//u@h")
SECRETS = st.fixed_dictionaries({"name": st.sampled_from(["keys", "team.keys-1"]), "key": st.just("pass_key")})

ODD: tuple[Any, ...] = (
    "", " ", " a", "a ", "\u00a0a", "a\u2028", "a\u200b", "a\tb", "a\x00b", "\x7f", "\x85x", "x" * 254, "é" * 253,
    "0", "0s", "0h0m0s", "5", "5 m", "-5s", "1d", "30m1h", "1000000h", "10000000m", "1234567890s", "1.s", ".5s", "٣s",
    "2013-02-30", "2013-2-3", "20130203", "0000-01-01", "0001-01-01", "9999-12-31", "2012-02-29",
    "2013-02-01T00:00:00Z",
    "postgresql://u:secret@h/db", "jdbc:x://h;Password = s", "jdbc:oracle:thin:a/b@//h", "x PWD=1", "paſſword=1",
    "https://h/x?sig=a", "jdbc:x://h?pass%77ord=s", "(host=h, toKen = a)", "jdbc:h2:x;INIT=a", "x?ſocketFactory=a",
    "a\u202eb", "a\u2066", "\u200fa", "\x9b1", {"socketFactory": "x"}, {"toKen": "x"},
    "1g", "0g", "1gb", "4G", "1Kg", "500m", "1.5Gi", "1e3", "-1", "Gi", "Ready", "READY", "DONE", "day", "month",
    "470m", "471m", "47m", "4710m", "482303k", "482304K", "99999999999999999999g", "999999k", "1000000k", "local:///a",
    "s3a://b/c.py", "a,b", "a.py,b.py", "g:a:v", "g:a", "g:a:v:x", "etl.jar",
    "5m\n", "a\r\nb", "999999h9999999m999999999s", "0.000000001s", "9999999999999999999", "x" * 65, "a" * 4097,
    "Drain", "Always", "descending", "hold", "publish", "cancel", "/abs", "rel", "A_1", "1A", "a-b", "a.b", "A", "-a",
    0, 1, -1, 2, 1000, 2**31 - 1, 2**31, -(2**31), 2**53, 2**63 - 1, 2**63, -(2**63), 0.5, 1.5, 2.0, 1e308, 1e-7,
    None, True, False, [], {}, ["a"], ["a", "a"], [""], [1], [["a"]], [{}], {"a": "b"}, {"password": "x"},
    {"PassWord": "x"},    [str(number) for number in range(101)], [str(number) for number in range(1001)],
    {f"k{number}": "x" for number in range(101)}, {f"k{number}": "x" for number in range(1001)},
    {"sfPASSWORD": "x"}, {"a-b": "c"}, {"A": 1}, {"from": "a"}, {"from": "b", "to": "a"}, {"id": "x"},
    {"instances": 2}, {"instances": 10001}, {"max": 1, "min": 2}, {"max": 3, "initial": 4}, {"enabled": True, "max": 5},
    {"spark.master": "local"}, {"spark.kubernetes.executor.label.a": "b"}, {"spark.hadoop.fs.s3a.secret.key": "x"},
    {"spark.hadoop.fs.s3a.access.key": "x"}, {"spark.x.TOKEN": "x"}, {"spark.jars": "a.jar"}, {"cores": 2},
    "https://u:p@h/x", "https://u@h/x", "git@h:x", "ssh://git@h/x", "-x", ".x", "a/b", "https://h/x y", {"path": "/a"},
)  # fmt: skip
"""What is right in some places and wrong in others."""

KEYS = ("from", "to", "list", "hash", "image", "command", "script", "spark", "password", "Password", "A_B", "a-b", "1",
        "id", "failed", "chunks", "status", "job", "dataset", "secretRef", "main", "args", "conf",
        "project", "pipeline", "git", "url", "ref", "username", "path", "configMap", "requireTests", "preflight",
        "cores", "memory", "driver", "executor", "instances", "dynamicAllocation", "initial", "sparkConf", "arguments",
        "mainApplicationFile", "unknown", "name", "step", "aliases", "credentials", "acceptLocation", "é")  # fmt: skip

_odd = st.sampled_from(ODD).map(copy.deepcopy)
_ids = st.sampled_from(IDS)
_names = st.sampled_from(["flights", "delays", "load-2", "a.b"])
_texts = st.sampled_from(["", "a", "a b", "ü$(X)\n", "'\"", "x" * 300])
_lines = st.sampled_from(["", "a b", "ü$(X)"])
_durations = st.sampled_from(DURATIONS)
_flags = st.booleans()
_counts = st.sampled_from([0, 1, 10, 2**31 - 1])
_id_lists = st.lists(_ids, min_size=1, max_size=4, unique=True)
_maps = st.dictionaries(st.sampled_from(["A", "_b", "C_3"]), _texts, max_size=2)
_quantities = st.dictionaries(
    st.sampled_from(["cpu", "memory"]), st.sampled_from(["1", "500m", "1.5", "4Gi", 2, 0]), max_size=2
)


def _some(needed: Body | None = None, **optional: Any) -> st.SearchStrategy[Body]:
    """A mapping with all of `needed` and some of `optional`."""
    return st.fixed_dictionaries(needed or {}, optional={name.rstrip("_"): made for name, made in optional.items()})


def _ends(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Body]:
    return st.one_of(
        st.fixed_dictionaries({"from": values}),
        st.fixed_dictionaries({"to": values}),
        st.fixed_dictionaries({"from": values, "to": values}),
    )


def _only(name: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Body]:
    return st.fixed_dictionaries({name: values})


_date_ranges = st.sampled_from(
    [
        {"from": "2013-01-01", "to": "2014-01-01", "step": "month"},
        {"from": "2012-02-28", "to": "2012-03-01", "step": "day"},
        {"from": "0001-01-01", "to": "9999-12-31", "step": "day"},
    ]
)
_ranges = st.sampled_from(
    [
        {"from": 0, "to": 2500, "step": 1000},
        {"from": -5, "to": 5, "step": 1},
        {"from": -(2**63), "to": 2**63 - 1, "step": 18446744073710},
        {"from": 0, "to": 10**6, "step": 1},
    ]
)
_chunk_sources = st.one_of(
    _only("list", _id_lists),
    _only("dateRange", _date_ranges),
    _only("range", _ranges),
    _only("hash", _only("buckets", st.sampled_from([1, 16, 10**6]))),
)
_credentials = st.one_of(
    _only("secretRef", SECRETS),
    st.fixed_dictionaries({"encryptedPassword": st.just("df1:abc"), "passkeySecretRef": SECRETS}),
)
_locations = _some(
    kind=_texts, hostname=_texts, tablename=_texts, url=st.sampled_from(URLS), format=_texts,
    options=st.dictionaries(st.sampled_from(["fetchsize", "sep"]), st.sampled_from(URLS), max_size=2),
)  # fmt: skip
_dataset_specs = _some(
    id=_ids, shareWith=st.lists(st.sampled_from(["team", "a-1"]), max_size=2), location=_locations,
    credentials=_credentials, chunkSource=_chunk_sources,
    partitioning=st.fixed_dictionaries({"column": st.just("day"), "type": st.sampled_from(["date", "hash"])}),
)  # fmt: skip

_arguments = st.lists(_texts, min_size=1, max_size=2)
_scripts = _some(
    {"image": st.sampled_from(["busybox", "registry/x:1@sha256:0"])},
    command=st.builds(lambda rest: ["./x.sh", *rest], _arguments), args=_arguments,
    workingDirectory=st.just("/data"), imagePullPolicy=st.sampled_from(["Always", "Never"]),
    resources=_some(requests=_quantities, limits=_quantities),
)  # fmt: skip
_spark_settings = st.dictionaries(
    st.sampled_from(["spark.a", "spark.sql.shuffle.partitions", "spark.kubernetes.executor.secrets.a-password"]),
    st.sampled_from(["", "8", "-XX:+UseSerialGC -Da=b", "s3a://bucket/logs"]), max_size=2,
)  # fmt: skip
_heaps = st.sampled_from(["1g", "471m", "482304k", "512M", "2t"])
_overheads = st.sampled_from(["1m", "2g", "100K"])
_files = st.lists(st.sampled_from(["/app/a.jar", "s3a://b/c.zip", "local:///d.py"]), max_size=2)
_drivers = _some(cores=st.sampled_from([1, 8]), memory=_heaps, memoryOverhead=_overheads)
_executors = _some(cores=st.sampled_from([1, 4]), memory=_heaps, memoryOverhead=_overheads)
_allocations = st.sampled_from([{"max": 1}, {"min": 2, "max": 10, "initial": 5}, {"enabled": False, "max": 3}])
_instances = st.sampled_from([0, 1, 10000])
_long_sparks = _some(
    {"mainApplicationFile": st.sampled_from(["etl.py", "local:///app/etl.py", "https://h/etl.py"])},
    arguments=_arguments, sparkConf=_spark_settings, pyFiles=_files, image=st.just("x:1"),
    imagePullPolicy=st.sampled_from(["Always", "Never"]), driver=_drivers, serviceAccount=st.just("drivers"),
    deps=_some(jars=_files, files=_files, packages=st.just(["org.postgresql:postgresql:42.7.7"])),
    executor=_executors, dynamicAllocation=_allocations,
)  # fmt: skip
_short_sparks = st.builds(
    lambda spark, instances: {**spark, "executor": {"instances": instances}},
    _some(
        {"main": st.just("etl.py")}, args=_arguments, conf=_spark_settings, cores=st.sampled_from([1, 8]),
        memory=_heaps,
    ),
    _instances,
)  # fmt: skip
_sparks = st.one_of(_long_sparks, _short_sparks)
_gits = st.one_of(
    _some({"url": st.sampled_from(["https://h/p.git", "http://h/p"])}, ref=st.sampled_from(["main", "v1.0", "a/b#1"])),
    _some({"url": st.just("https://h/p.git"), "secretRef": SECRETS}, username=st.just("deploy")),
)
_pipelines = _some(
    {
        "project": st.one_of(_only("git", _gits), _only("path", st.just("/app")), _only("configMap", st.just("a.b"))),
        "pipeline": st.sampled_from(["delays", "a b", "ü"]),
    },
    requireTests=_flags, preflight=_flags, output=st.just("/data"), image=st.just("x:1"), driver=_drivers,
    executor=_executors, sparkConf=_spark_settings, dynamicAllocation=_allocations, pyFiles=_files,
)  # fmt: skip
_applications = _only(
    "template",
    _some(
        {"spec": st.just({"type": "Python", "driver": {"cores": 1, "new": [None, 1.5]}})},
        metadata=_some(labels=_maps, annotations=_maps),
    ),
)
_backoffs = _some(
    initial=st.sampled_from(["0s", "1s", "10m"]), factor=st.sampled_from([1, 1.5, 2.0]), max=st.just("1h")
)
_resubmits = st.builds(
    lambda request, which: {**request, **which},
    _some({"id": _ids}, cascade=_flags),
    st.one_of(_only("chunks", _id_lists), _only("failed", st.just(True)), _ends(_ids)),
)
_all_job_specs = _some(
    {
        "inputs": st.lists(st.sampled_from(["a", "b", "today", "team-a/a"]), min_size=1, max_size=3, unique=True),
        "runtime": st.one_of(
            _only("script", _scripts),
            _only("script", _scripts),
            _only("spark", _sparks),
            _only("pipeline", _pipelines),
            _only("sparkApplication", _applications),
        ),
    },
    id=_ids, outputs=st.lists(st.sampled_from(["c", "d"]), max_size=2, unique=True), parallelism=_counts,
    suspend=_flags,
    order=st.sampled_from(["ascending", "descending"]), priority=st.sampled_from([-1000, 0, 1000]),
    chunks=st.one_of(st.just({}), _ends(_ids)),
    retry=_some(limit=_counts, infrastructureLimit=_counts, backoff=_backoffs),
    startDeadline=_durations, runDeadline=_durations, onNodeUnreachable=_only("retryAfter", _durations),
    onDelete=st.sampled_from(["Drain", "Cancel"]), resubmit=_resubmits, env=_maps,
    podTemplate=_some(
        metadata=_some(labels=_maps, annotations=_maps),
        spec=st.sampled_from([{}, {"nodeSelector": {"a": "b"}}, {"containers": [{"name": "main", "new": [1, 2.5]}]}]),
    ),
)  # fmt: skip


def _with_alias(spec: Body) -> Body:
    """Give an input of another namespace a name of its own."""
    return spec | {"aliases": {"theirs": "team-a/a"}} if "team-a/a" in spec["inputs"] else spec


_job_specs = _all_job_specs.map(_with_alias).filter(
    lambda spec: "podTemplate" not in spec or "sparkApplication" not in spec["runtime"]
)

_selections = st.one_of(_only("chunks", _id_lists), _only("range", _ends(_ids)), _only("status", st.just("FAILED")))
_requests = st.one_of(
    _some({"job": _ids, "action": st.sampled_from(["hold", "release", "skip", "force", "cancel"])}),
    _some({"dataset": _ids, "action": st.sampled_from(["hold", "release", "publish", "accept", "reject"])}),
    _some({"job": _ids, "action": st.just("resubmit")}, cascade=_flags),
)
_action_specs = st.builds(
    lambda request, which, rest: {**request, **which, **rest},
    _requests,
    _selections,
    _some(reason=_lines, ttl=_durations),
)


def _bodies(kind: str, specs: st.SearchStrategy[Body]) -> st.SearchStrategy[Body]:
    return st.builds(
        lambda name, spec: {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec},
        _names,
        specs,
    )


valid = st.one_of(
    _bodies("DataSet", _dataset_specs), _bodies("DataFlowJob", _job_specs), _bodies("DataFlowAction", _action_specs)
)
"""Resources in which nothing is wrong."""


def _paths(value: Any, path: Path = ()) -> list[Path]:
    """Every place below a value."""
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found: list[Path] = []
    for key, child in items:
        found += [(*path, key), *_paths(child, (*path, key))]
    return found


@st.composite
def _changed(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Body:
    body: Body = copy.deepcopy(draw(valid))
    for _ in range(draw(st.integers(1, 2))):
        paths = [("spec",), *_paths(body["spec"], ("spec",))]
        *above, last = draw(st.sampled_from(paths))
        parent: Any = body
        for key in above:
            parent = parent[key]
        change = draw(st.sampled_from(["value", "value", "key", "remove"]))
        if change == "remove" and above:
            del parent[last]
        elif change == "key" and isinstance(parent[last], dict):
            parent[last] = {**parent[last], draw(st.sampled_from(KEYS)): draw(_odd)}
        elif change == "key" and isinstance(parent[last], list):
            parent[last] = [*parent[last], draw(_odd)]
        else:
            parent[last] = draw(_odd)
        if not isinstance(body["spec"], dict):
            break
    return body


changed = _changed()
"""Resources of which one or two places were exchanged; most of them are wrong."""

resources = st.integers(0, 3).flatmap(lambda number: changed if number else valid)
