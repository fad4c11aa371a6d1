"""The job file: what is read, and the exact sentence for each thing that is wrong."""

from pathlib import Path

import pytest

from opendataflow.errors import InvalidInput
from opendataflow.model.resources.jobfile import absolute_path, parse_job_file

JOB = """\
apiVersion: opendataflow.io/v1alpha1
kind: DataFlowJob
metadata: {name: delays}
spec:
  inputs: [flights]
"""
SCRIPT = JOB + "  runtime: {script: {command: [./x.sh]}}\n"
DATASET = """\
apiVersion: opendataflow.io/v1alpha1
kind: DataSet
metadata: {name: flights}
spec:
"""
EVERYTHING = """\
apiVersion: opendataflow.io/v1alpha1
kind: DataSet
metadata: {name: flights, namespace: team, labels: {tier: gold}, annotations: {by: me}}
spec:
  id: Flights
  location: {kind: table, hostname: h, database: d, schemaname: s, tablename: t, username: u,
             url: "jdbc:postgresql://h/d", format: jdbc, options: {fetchsize: "1000"}}
  shareWith: [other-team]
  credentials: {encryptedPassword: lmibu, passkeySecretRef: {name: keys, key: passkey}}
  chunkSource: {dateRange: {from: 2013-01-01, to: 2014-01-01, step: month}}
  partitioning: {column: day, type: date}
---
apiVersion: opendataflow.io/v1alpha1
kind: DataFlowJob
metadata: {name: delays}
spec:
  inputs: [Flights, team-a/airports]
  aliases: {flights: Flights}
  credentials: {team-a/airports: {username: u, secretRef: {name: airports, key: password}, acceptLocation: 4f2a}}
  outputs: [delays]
  runtime: {spark: {main: etl.py, args: ["1"], conf: {spark.sql.shuffle.partitions: "8"},
                    cores: 2, memory: 2g}}
  parallelism: 10
  suspend: true
  order: descending
  priority: -1
  chunks: {from: 2013-02, to: 2013-03}
  retry: {limit: 0, infrastructureLimit: 1, backoff: {initial: 1s, factor: 1.5, max: 1h}}
  startDeadline: 5m
  runDeadline: 2h
  onNodeUnreachable: {retryAfter: 10m}
  keepLog: false
  onDelete: Cancel
  resubmit: {id: fix-42, from: 2013-02, to: 2013-03, cascade: true}
  env: {MODE: full}
  podTemplate: {metadata: {labels: {team: a}}, spec: {nodeSelector: {disk: fast}}}
"""
NO_PASSWORD = (
    "a password is never written in plain text; write spec.credentials.encryptedPassword of the data set instead "
    "(made by `dataflow crypt new`)"
)
NO_PASSWORD_IN_URL = (
    "a password in a URL would be stored in plain text; take it out and write spec.credentials.encryptedPassword "
    "(made by `dataflow crypt new`)"
)
DURATION = 'a duration is hours, minutes and seconds like "90s", "5m" or "1h30m"'
VARIABLE = "the name of a variable has only letters, digits and _ and does not begin with a digit"


def refusal(text: str) -> str:
    with pytest.raises(InvalidInput) as caught:
        parse_job_file(text, "f.yaml")
    return str(caught.value)


# What is read --------------------------------------------------------------------------------------------


def test_every_field_of_both_kinds_is_read() -> None:
    declared = parse_job_file(EVERYTHING, "f.yaml")
    (dataset,), (job,) = declared.datasets, declared.jobs
    assert (dataset.id, job.id) == ("Flights", "delays")
    assert len(list(dataset.chunks())) == 12
    assert job.spec.run_deadline_seconds == 7200
    unset = {
        f"{name}.{field}"
        for name, part in (("DataSet", dataset.spec), ("DataFlowJob", job.spec), ("retry", job.spec.retry))
        for field in type(part).model_fields.keys() - part.model_fields_set
    }
    assert unset == {"DataFlowJob.id", "DataSet.allow", "DataFlowJob.allow"}


def test_resources_keep_the_order_of_the_file() -> None:
    second = DATASET.replace("flights", "airports")
    declared = parse_job_file(f"{DATASET}  id: flights\n---\n{SCRIPT}---\n{second}  id: airports", "f.yaml")
    assert [dataset.id for dataset in declared.datasets] == ["flights", "airports"]
    assert [job.id for job in declared.jobs] == ["delays"]


def test_empty_documents_are_nothing() -> None:
    assert len(parse_job_file(f"---\n# nothing\n---\n{SCRIPT}---\n", "f.yaml").jobs) == 1


def test_a_data_set_and_a_job_may_share_an_id() -> None:
    declared = parse_job_file(f"{SCRIPT}---\n{DATASET}  id: delays\n", "f.yaml")
    assert declared.datasets[0].id == declared.jobs[0].id


@pytest.mark.parametrize(
    "written", ["2013-01-01", "yes", "no", "on", "off", "12:30:45", "007", "1_000", "0x1F", ".inf", "1e3", "=", "y"]
)
def test_what_yaml_would_turn_into_something_else_stays_text(written: str) -> None:
    (job,) = parse_job_file(f"{SCRIPT}  env: {{A: {written}}}\n", "f.yaml").jobs
    assert job.spec.env == {"A": written}


@pytest.mark.parametrize("value", ['"', "$(X)", "`", "\\", "ünï ✓", "  two  ", "line\nline", ""])
def test_text_in_quotes_is_untouched(value: str) -> None:
    quoted = value.replace("'", "''").replace("\n", "\n\n    ")
    (job,) = parse_job_file(f"{SCRIPT}  env: {{A: '{quoted}'}}\n", "f.yaml").jobs
    assert job.spec.env == {"A": value}


def test_an_anchor_merged_into_a_mapping_is_overridden_by_its_own_keys() -> None:
    text = f"""\
{JOB}  runtime: {{spark: {{main: etl.py, conf: &shared {{A: "1", B: "2"}}}}}}
  env:
    <<: *shared
    B: "3"
"""
    (job,) = parse_job_file(text, "f.yaml").jobs
    assert job.spec.env == {"A": "1", "B": "3"}


# Faults of YAML ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "a: [",
            "f.yaml, line 1, column 5: while parsing a flow node, expected the node content, but found '<stream end>'",
        ),
        ("a: 1\n b: 2", "f.yaml, line 2, column 3: mapping values are not allowed here"),
        ("x: *foo", "f.yaml, line 1, column 4: found undefined alias 'foo'"),
        ("a: 1\nb: 1\na: 2", "f.yaml, line 3, column 1: the key a is written twice (first on line 1); remove one"),
        (
            f"{SCRIPT}  inputs: [b]",
            "f.yaml, line 7, column 3: the key inputs is written twice (first on line 5); remove one",
        ),
        ("1: x", 'f.yaml, line 1, column 1: the key 1 is not text; quote it: "1"'),
        ("a: {true: x}", 'f.yaml, line 1, column 5: the key true is not text; quote it: "true"'),
        ("? [a]\n: b", "f.yaml, line 1, column 3: a list or mapping can't be a key"),
        (
            "a: !!set {x}",
            "f.yaml, line 1, column 4: the type !!set is not known here; write text, numbers, lists and mappings",
        ),
        (
            "a: !!timestamp 2013-01-01",
            "f.yaml, line 1, column 4: the type !!timestamp is not known here; write text, numbers, lists and mappings",
        ),
        (
            "a: !!python/object:os.system x",
            (
                "f.yaml, line 1, column 4: the type !!python/object:os.system is not known here; "
                "write text, numbers, lists and mappings"
            ),
        ),
        ("a: !!int abc", "f.yaml, line 1, column 4: `abc` can't be read as !!int"),
        ("a: !!bool maybe", "f.yaml, line 1, column 4: `maybe` can't be read as !!bool"),
        ("a: &a [*a]", "f.yaml, line 1, column 4: found unconstructable recursive node"),
        (
            'a:\n  "\\ud800"',
            "f.yaml, line 2, column 3: NUL and halves of surrogate pairs can't be stored; take them out",
        ),
        ('"a\\0": b', "f.yaml, line 1, column 1: NUL and halves of surrogate pairs can't be stored; take them out"),
        ("a: 1\nx: \x01", "f.yaml, line 2, column 4: the character U+0001 is not allowed in YAML"),
        ("[" * 3000, "f.yaml: the file is nested too deeply"),
    ],
)
def test_a_fault_of_yaml_is_reported_with_its_line_and_column(text: str, sentence: str) -> None:
    assert refusal(text) == sentence


# Not a resource ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "f.yaml: nothing is declared here; write a DataSet or a DataFlowJob"),
        ("---\n- x", "f.yaml, line 2: a resource has apiVersion, kind, metadata and spec, this is a list"),
        ("hello", 'f.yaml, line 1: a resource has apiVersion, kind, metadata and spec, this is "hello"'),
        ("kind: DataSet", "f.yaml, line 1: apiVersion is missing; known here: opendataflow.io/v1alpha1"),
        (
            "apiVersion: batch/v1\nkind: Job",
            'f.yaml, line 1: apiVersion "batch/v1" is not known; known here: opendataflow.io/v1alpha1',
        ),
        (
            "apiVersion: opendataflow.io/v1alpha1",
            "f.yaml, line 1: kind is missing; known here: DataFlowJob and DataSet",
        ),
        (
            f"{SCRIPT}---\napiVersion: opendataflow.io/v1alpha1\nkind: Dataset",
            'f.yaml, line 8: kind "Dataset" is not known; known here: DataFlowJob and DataSet',
        ),
        (
            "apiVersion: opendataflow.io/v1alpha1\nkind: [DataSet]",
            "f.yaml, line 1: kind a list is not known; known here: DataFlowJob and DataSet",
        ),
        (
            "apiVersion: opendataflow.io/v1alpha1\nkind: DataSet",
            "f.yaml, line 1, DataSet: metadata: this field is needed",
        ),
        (
            f"{DATASET}  id: flights\n---\n{DATASET}  id: flights",
            "f.yaml, line 7: there is another DataSet with the id flights on line 1; give one of them another spec.id",
        ),
        (
            f"{SCRIPT}---\n{SCRIPT.replace('name: delays', 'name: x')}  id: delays",
            (
                "f.yaml, line 8: there is another DataFlowJob with the id delays on line 1; "
                "give one of them another spec.id"
            ),
        ),
    ],
)
def test_what_is_no_known_resource_is_refused(text: str, sentence: str) -> None:
    assert refusal(text) == sentence


# Faults of a job -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("retry: {limt: 3}", "spec.retry.limt: no such field; did you mean limit?"),
        ("run_deadline: 5s", "spec.run_deadline: no such field; did you mean runDeadline?"),
        ("retry: {zzz: 3}", "spec.retry.zzz: no such field; known here: limit, infrastructureLimit, backoff"),
        ("retry: {backoff: {maximum: 1h}}", ("spec.retry.backoff.maximum: no such field; "
                                            "known here: initial, factor, max")),
        ("parallelism: yes", 'spec.parallelism: a whole number is wanted, found "yes"'),
        ("parallelism: 1.0", "spec.parallelism: a whole number is wanted, found 1.0"),
        ("parallelism: true", "spec.parallelism: a whole number is wanted, found true"),
        ("parallelism:", "spec.parallelism: a whole number is wanted, found nothing"),
        ("parallelism: -1", "spec.parallelism: 0 or more is wanted, found -1"),
        ("parallelism: 3000000000", "spec.parallelism: 2147483647 or less is wanted, found 3000000000"),
        ("priority: 1001", "spec.priority: 1000 or less is wanted, found 1001"),
        ("priority: -1001", "spec.priority: -1000 or more is wanted, found -1001"),
        ("priority: high", 'spec.priority: a whole number is wanted, found "high"'),
        ("suspend: yes", 'spec.suspend: true or false is wanted, found "yes"'),
        ("suspend: 1", "spec.suspend: true or false is wanted, found 1"),
        ("order: up", "spec.order: 'ascending' or 'descending' is wanted, found \"up\""),
        ("outputs: delays", 'spec.outputs: a list is wanted, found "delays"'),
        ("outputs: {a: b}", "spec.outputs: a list is wanted, found a mapping"),
        ("outputs: [a, b, a]", "spec.outputs[2]: a is written twice"),
        ("outputs: [a, flights]",
         "spec.outputs: flights is in inputs and in outputs; a job can't make what it reads"),
        ("outputs: [1.10]", 'spec.outputs[0]: text is wanted; quote it: "1.10"'),
        ("outputs: [[a]]", "spec.outputs[0]: text is wanted, found a list"),
        ("outputs: ['']", 'spec.outputs[0]: text of 1 or more characters is wanted, found ""'),
        (f"id: {'x' * 254}", "spec.id: text of at most 253 characters is wanted"),
        ("id: ' x'", "spec.id: an id can't begin or end with a blank, found \" x\""),
        ('id: "a\\eb"', "spec.id: an id can't hold control characters, found \"a\\x1bb\""),
        ('id: "a\\u202Eb"', "spec.id: an id can't hold control characters, found \"a\\u202eb\""),
        ("chunks: {from: 2}", 'spec.chunks.from: text is wanted; quote it: "2"'),
        ("chunks: 2013-01", 'spec.chunks: a mapping is wanted, found "2013-01"'),
        ("retry: {limit: -1}", "spec.retry.limit: 0 or more is wanted, found -1"),
        ("retry: {infrastructureLimit: many}",
         'spec.retry.infrastructureLimit: a whole number is wanted, found "many"'),
        ("retry: {backoff: {initial: 5 min}}", f'spec.retry.backoff.initial: {DURATION}, found "5 min"'),
        ("retry: {backoff: {initial: 5}}", 'spec.retry.backoff.initial: text is wanted; quote it: "5"'),
        ("retry: {backoff: {initial: 20m}}",
         "spec.retry.backoff: initial (20m) is longer than max (10m); write a longer max"),
        ("retry: {backoff: {factor: 0.5}}", "spec.retry.backoff.factor: 1.0 or more is wanted, found 0.5"),
        ("retry: {backoff: {factor: true}}", "spec.retry.backoff.factor: a number is wanted, found true"),
        ("retry: {backoff: {factor: twice}}", 'spec.retry.backoff.factor: a number is wanted, found "twice"'),
        ("retry: {backoff: {factor: !!float .inf}}",
         "spec.retry.backoff.factor: a finite number is wanted, found .inf"),
        ("runDeadline: 1d", f'spec.runDeadline: {DURATION}, found "1d"'),
        ("runDeadline: 0s",
         'spec.runDeadline: the deadline must be longer than 0; leave it out for no deadline, found "0s"'),
        ("startDeadline: 0m",
         'spec.startDeadline: the time to start must be longer than 0; leave it out for the default, found "0m"'),
        ("onNodeUnreachable: {}", "spec.onNodeUnreachable.retryAfter: this field is needed"),
        ("onDelete: drain", "spec.onDelete: 'Drain' or 'Cancel' is wanted, found \"drain\""),
        ("resubmit: {id: a}", "spec.resubmit: exactly one of chunks, failed, stale, from and to is wanted"),
        ("resubmit: {id: a, failed: true, to: b}",
         "spec.resubmit: exactly one of chunks, failed, stale, from and to is wanted"),
        ("podTemplate: {spec: 5}", "spec.podTemplate.spec: a mapping is wanted"),
        ("podTemplate: {metadata: {name: x}}",
         "spec.podTemplate.metadata.name: no such field; known here: labels, annotations"),
        ("env: {a-b: x}", f"spec.env.a-b: {VARIABLE}"),
        ("env: {1A: x}", f"spec.env.1A: {VARIABLE}"),
        ("env: {A: 1}", "spec.env.A: text is wanted; quote it"),
        ("env: {Password: hunter2}", f"spec.env.Password: {NO_PASSWORD}"),
        ("password: hunter2", f"spec.password: {NO_PASSWORD}"),
        ("retry: {password: hunter2}", f"spec.retry.password: {NO_PASSWORD}"),
    ],
)  # fmt: skip
def test_a_fault_of_a_job_is_one_sentence_with_its_place(spec: str, sentence: str) -> None:
    assert refusal(f"{SCRIPT}  {spec}\n") == f"f.yaml, DataFlowJob delays: {sentence}"


@pytest.mark.parametrize(
    ("runtime", "sentence"),
    [
        ("{}", "spec.runtime: exactly one of script, spark, pipeline, sparkApplication is wanted, found none"),
        ("{script: {command: [a]}, spark: {main: b}}",
         "spec.runtime: exactly one of script, spark, pipeline, sparkApplication is wanted, found script and spark"),
        ("{script: {}}", "spec.runtime.script.command: this field is needed"),
        ("{script: {command: []}}", "spec.runtime.script.command: 1 or more items are wanted"),
        ("{script: {command: ['']}}", "spec.runtime.script.command[0]: the program is empty"),
        ("{script: {command: ./x.sh}}", 'spec.runtime.script.command: a list is wanted, found "./x.sh"'),
        ("{script: {command: [./x.sh, 2.0]}}",
         'spec.runtime.script.command[1]: text is wanted; quote it: "2.0"'),
        ("{script: {command: [a], workdir: b}}",
         ("spec.runtime.script.workdir: no such field; known here: image, command, args, workingDirectory, "
         "imagePullPolicy, resources, preflight")),
        ("{script: {command: [a], resources: {limits: {cpu: 1.5}}}}",
         'spec.runtime.script.resources.limits.cpu: text is wanted; quote it: "1.5"'),
        ("{script: {command: [a], resources: {limits: {cpu: one}}}}",
         ('spec.runtime.script.resources.limits.cpu: a quantity is a number like "2", "500m", "1.5" or "4Gi", '
         'found "one"')),
        ("{spark: {main: ''}}", 'spec.runtime.spark.main: text of 1 or more characters is wanted, found ""'),
        ("{spark: {main: a, cores: 0}}", "spec.runtime.spark.cores: 1 or more is wanted, found 0"),
        ("{spark: {main: a, memory: 1gb}}",
         ('spec.runtime.spark.memory: memory is a whole number with k, m, g or t like "512m" or "4g", '
         'found "1gb"')),
        ("{spark: {main: a, conf: {x: true}}}", "spec.runtime.spark.conf.x: text is wanted; quote it"),
    ],
)  # fmt: skip
def test_a_fault_of_a_runtime_is_one_sentence_with_its_place(runtime: str, sentence: str) -> None:
    assert refusal(f"{JOB}  runtime: {runtime}\n") == f"f.yaml, DataFlowJob delays: {sentence}"


def test_a_job_without_data_sets_is_refused() -> None:
    assert refusal(SCRIPT.replace("[flights]", "[]")) == (
        "f.yaml, DataFlowJob delays: spec: a job needs at least one data set in inputs or outputs"
    )


# Faults of a data set ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("chunkSource: {}",
         "spec.chunkSource: exactly one of list, dateRange, range, hash is wanted, found none"),
        ("chunkSource: {list: [a], range: {from: 0, to: 5, step: 2}}",
         "spec.chunkSource: exactly one of list, dateRange, range, hash is wanted, found list and range"),
        ("chunkSource: {list: []}", "spec.chunkSource.list: 1 or more items are wanted"),
        (f"chunkSource: {{list: [{', '.join(f'd{n}' for n in range(1001))}]}}",
         "spec.chunkSource.list: at most 1000 items are wanted"),
        ("chunkSource: {list: ['1.0', 1.0]}", 'spec.chunkSource.list[1]: text is wanted; quote it: "1.0"'),
        ("chunkSource: {list: [true]}", 'spec.chunkSource.list[0]: text is wanted; quote it: "true"'),
        ("chunkSource: {list: [a, a]}", "spec.chunkSource.list[1]: a is written twice"),
        ("chunkSource: {dateRange: {from: 2013-1-1, to: 2014-01-01, step: day}}",
         'spec.chunkSource.dateRange.from: a date is written like "2013-01-31", found "2013-1-1"'),
        ("chunkSource: {dateRange: {from: 2013-02-30, to: 2014-01-01, step: day}}",
         'spec.chunkSource.dateRange.from: a date is written like "2013-01-31", found "2013-02-30"'),
        ("chunkSource: {dateRange: {from: 2013-01-01, to: 20140101, step: day}}",
         'spec.chunkSource.dateRange.to: text is wanted; quote it: "20140101"'),
        ("chunkSource: {dateRange: {from: 2013-01-01, to: 2013-01-01, step: day}}",
         "spec.chunkSource.dateRange: `to` is not included, so it must be later than `from`"),
        ("chunkSource: {dateRange: {from: 2013-01-02, to: 2014-01-01, step: month}}",
         "spec.chunkSource.dateRange.from: with step month it is the first day of a month"),
        ("chunkSource: {dateRange: {from: 2013-01-01, to: 2013-12-31, step: month}}",
         "spec.chunkSource.dateRange.to: with step month it is the first day of the month after the last one"),
        ("chunkSource: {dateRange: {from: 2013-01-01, to: 2014-01-01, step: week}}",
         "spec.chunkSource.dateRange.step: 'day' or 'month' is wanted, found \"week\""),
        ("chunkSource: {range: {from: 5, to: 5, step: 1}}",
         "spec.chunkSource.range: `to` is not included, so it must be greater than `from`"),
        ("chunkSource: {range: {from: 0, to: 5, step: 0}}",
         "spec.chunkSource.range.step: 1 or more is wanted, found 0"),
        ("chunkSource: {range: {from: 0, to: 1e3, step: 1}}",
         'spec.chunkSource.range.to: a whole number is wanted, found "1e3"'),
        ("chunkSource: {range: {start: 0, to: 5, step: 1}}",
         ("spec.chunkSource.range.from: this field is needed\n"
         "spec.chunkSource.range.start: no such field; known here: from, to, step")),
        ("partitioning: {column: day, type: hour}",
         "spec.partitioning.type: 'date', 'range', 'list' or 'hash' is wanted, found \"hour\""),
        ("location: {port: 5432}",
         ("spec.location.port: no such field; known here: kind, hostname, database, schemaname, tablename, "
         "username, url, format, options")),
        ("location: {hostname: 10.0}", 'spec.location.hostname: text is wanted; quote it: "10.0"'),
        ("location: postgresql://u:hunter2@h", "spec.location: a mapping is wanted"),
        ("location: {password: hunter2}", f"spec.location.password: {NO_PASSWORD}"),
        ("location: {url: 'postgresql://u:hunter2@h'}", f"spec.location.url: {NO_PASSWORD_IN_URL}"),
        ("location: {options: {dsn: 'host=h password=hunter2'}}",
         f"spec.location.options.dsn: {NO_PASSWORD_IN_URL}"),
        ("location: {options: {sfPassword: 12345}}", f"spec.location.options.sfPassword: {NO_PASSWORD}"),
        ("location: {options: {fetchsize: 1000}}", "spec.location.options.fetchsize: text is wanted; quote it"),
        ("chunkSource: {hash: {buckets: 0}}", "spec.chunkSource.hash.buckets: 1 or more is wanted, found 0"),
        ("shareWith: [Team]",
         ("spec.shareWith[0]: the name of a namespace has lower-case letters, digits and -, and begins and ends "
         'with no -, found "Team"')),
        ("credentials: {}",
         "spec.credentials: exactly one of encryptedPassword, secretRef is wanted, found none"),
        ("credentials: {encryptedPassword: x, secretRef: {name: a, key: b}}",
         ("spec.credentials: exactly one of encryptedPassword, secretRef is wanted, "
         "found encryptedPassword and secretRef")),
        ("credentials: {secretRef: {name: a, key: b}, passkeySecretRef: {name: a, key: b}}",
         ("spec.credentials.passkeySecretRef: there is no ciphertext for this passkey; "
         "write encryptedPassword, or leave it out")),
        ("credentials: {secretRef: {name: A_, key: b}}",
         ("spec.credentials.secretRef.name: the name of a Secret has lower-case letters, digits, - and ., "
         "and begins and ends with a letter or digit")),
        ("credentials: hunter2", "spec.credentials: a mapping is wanted"),
        ("credentials: {password: hunter2}", f"spec.credentials.password: {NO_PASSWORD}"),
        ("credentials: {encryptedPassword: 12345}",
         "spec.credentials.encryptedPassword: text is wanted; quote it"),
        ("credentials: {encryptedPassword: ''}",
         "spec.credentials.encryptedPassword: text of 1 or more characters is wanted"),
    ],
)  # fmt: skip
def test_a_fault_of_a_data_set_is_one_sentence_with_its_place(spec: str, sentence: str) -> None:
    expected = [f"f.yaml, DataSet flights: {line}" for line in sentence.splitlines()]
    assert refusal(f"{DATASET}  {spec}\n").splitlines() == expected


def test_all_faults_of_a_file_are_reported_at_once() -> None:
    text = f"{SCRIPT}  parallelism: -1\n  order: up\n---\n{DATASET}  iid: x\n---\nkind: x\n"
    assert refusal(text).splitlines() == [
        "f.yaml, DataFlowJob delays: spec.parallelism: 0 or more is wanted, found -1",
        "f.yaml, DataFlowJob delays: spec.order: 'ascending' or 'descending' is wanted, found \"up\"",
        "f.yaml, DataSet flights: spec.iid: no such field; did you mean id?",
        "f.yaml, line 16: apiVersion is missing; known here: opendataflow.io/v1alpha1",
    ]


@pytest.mark.parametrize(("own", "quoted"), [("tablename: t", "1.10"), ("hostname: 2.20", "2.20")])
def test_a_number_behind_a_merge_key_is_quoted_as_it_is_written(own: str, quoted: str) -> None:
    text = f"{DATASET}  location:\n    <<: {{hostname: 1.10}}\n    {own}\n"
    assert refusal(text) == (f'f.yaml, DataSet flights: spec.location.hostname: text is wanted; quote it: "{quoted}"')


# Paths ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "path"),
    [("./etl.py", "/jobs/etl.py"), ("a/b.py", "/jobs/a/b.py"), ("/opt/etl.py", "/opt/etl.py"), (None, "/jobs")],
)
def test_a_relative_path_starts_at_the_folder_of_the_file(written: str | None, path: str) -> None:
    assert absolute_path(written, Path("/jobs")) == Path(path)


def test_a_folder_that_is_not_absolute_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="not absolute"):
        absolute_path("x", Path("jobs"))
