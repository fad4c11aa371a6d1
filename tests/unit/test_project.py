"""project.yml, in its own form and in the Django tool's: what it becomes, and which messages mistakes get."""

import json

import pytest

from opendataflow.errors import InvalidInput
from opendataflow.model.projects.project import ProjectFile, parse_project, project_schema

DJANGO = """\
name: Lead Collection
pipelines:
  - slug: clean_entries
    sources: [form_entries.csv, salutations]
    destination: datasource_csv
    transformations: [build_hello.py, add_salutation]
"""

OURS = """\
version: 2
name: flights
pipelines:
  - slug: delays
    sources:
      - name: flights
        partitioning: {column: day, type: date}
    destination: {name: delays, partition: day}
    transformations:
      - arrived
      - {name: by_carrier, engine: pandas}
"""


def parse(text: str) -> ProjectFile:
    return parse_project(text, "project.yml")


def refusal(text: str) -> list[str]:
    with pytest.raises(InvalidInput) as refused:
        parse(text)
    return str(refused.value).splitlines()


def test_a_project_of_the_django_tool_becomes_pandas_pipelines_on_csv_files() -> None:
    file = parse(DJANGO)
    assert file.django
    (pipeline,) = file.project.pipelines
    assert [source.where for source in pipeline.sources] == ["sources/form_entries.csv", "sources/salutations.csv"]
    assert [(it.name, it.engine) for it in pipeline.transformations] == [
        ("build_hello", "pandas"),
        ("add_salutation", "pandas"),
    ]


def test_what_is_not_written_has_defaults() -> None:
    file = parse(OURS)
    assert not file.django
    (pipeline,) = file.project.pipelines
    assert pipeline.sources[0].where == "sources/flights.csv"
    assert (pipeline.destination.where, pipeline.destination.format) == ("output/delays", "parquet")
    assert [it.engine for it in pipeline.transformations] == [None, "pandas"]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("slug: delays", "slog: delays", "line 4: pipelines[0].slog: no such field; did you mean slug?"),
        ("type: date", "type: day", "line 7: pipelines[0].sources[0].partitioning.type: 'date', 'range', "),
        (
            "- arrived",
            "- by_carrier",
            "line 11: pipelines[0].transformations[1]: there are two steps with the name by_c",
        ),
        ("slug: delays", "slug: ../d", "line 4: pipelines[0].slug: it is the name of a file or folder: no slashes, "),
        (
            "slug: delays",
            f"slug: {'ü' * 101}",
            "line 4: pipelines[0].slug: the name of a file has at most 200 bytes, and",
        ),
        (
            "name: flights\npipelines",
            "\tname: 7\npipelines",
            "line 2, column 1: a tab is no indentation in YAML; write",
        ),
        ("name: flights\npipelines", "name: 7\npipelines", 'line 2: name: text is wanted; quote it: "7"'),
        ("version: 2", "version: 3", "line 1: version: 2 is wanted, found 3"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_line(old: str, new: str, sentence: str) -> None:
    assert old in OURS
    lines = refusal(OURS.replace(old, new, 1))
    assert any(line.startswith(f"project.yml, {sentence}") for line in lines), lines


def test_mistakes_are_reported_in_the_order_of_their_lines() -> None:
    lines = refusal(
        OURS.replace("version: 2", "version: 3").replace("- arrived", "- .py").replace("partition:", "part:")
    )
    assert [line.split(":")[0] for line in lines] == [f"project.yml, line {line}" for line in (1, 8, 10)]


def test_two_pipelines_of_one_slug_are_refused() -> None:
    again = OURS[OURS.index("  - slug") :]
    (line,) = refusal(OURS + again)
    assert line.startswith("project.yml, line 12: pipelines[1]: there is another pipeline with the slug delays;")


def test_two_pipelines_with_one_destination_are_refused() -> None:
    again = OURS[OURS.index("  - slug") :].replace("slug: delays", "slug: again")
    (line,) = refusal(OURS + again)
    assert line.startswith("project.yml, line 12: pipelines[1]: another pipeline writes to delays;")


def test_two_pipelines_of_the_django_tool_may_share_a_destination_on_files_and_it_is_noted() -> None:
    again = DJANGO[DJANGO.index("  - slug") :].replace("slug: clean_entries", "slug: again")
    (note,) = parse(DJANGO + again).notes()
    assert note.startswith("project.yml, line 9: another pipeline has the destination datasource_csv too;")
    assert list(parse(DJANGO).notes()) == []


def test_a_destination_of_the_django_tool_is_one_text() -> None:
    assert refusal(DJANGO.replace("datasource_csv", "[a, b]")) == [
        "project.yml, line 5: pipelines[0].destination: text is wanted, found a list"
    ]


def test_fields_of_the_new_form_without_its_version_name_the_remedy() -> None:
    lines = refusal(OURS.replace("version: 2\n", ""))
    assert lines[-1] == (
        "project.yml: without `version: 2` it is read in the form of the Django tool; write it at the top"
    )


@pytest.mark.parametrize("text", ["", "# nothing\n", "name: a\n---\nname: b\n"])
def test_a_file_has_one_project(text: str) -> None:
    assert refusal(text)[0].startswith("project.yml: one project is wanted, this file has ")


def test_a_pipeline_that_is_not_there_is_reported_with_those_that_are() -> None:
    with pytest.raises(InvalidInput, match=r"there is no pipeline delay; known here: delays"):
        parse(OURS).pipeline("delay")


def test_the_schema_knows_both_forms_and_nothing_of_kubernetes() -> None:
    schema = project_schema()
    assert schema["then"]["$ref"] == "#/$defs/Project"
    assert schema["else"]["$ref"] == "#/$defs/DjangoProject"
    assert "x-kubernetes" not in json.dumps(schema)


def test_a_source_may_be_a_name_or_a_mapping_in_the_schema() -> None:
    name, mapping = project_schema()["$defs"]["Source"]["anyOf"]
    assert name["type"] == "string"
    assert mapping["required"] == ["name"]


TABLES = """\
version: 2
name: shop
pipelines:
  - slug: orders
    sources: [{name: orders, database: {url: "jdbc:postgresql://h/d", user: u, passwordVariable: WORD}, SOURCE}]
    destination: {name: out, DESTINATION}
    transformations: [one]
"""
DATABASE = 'database: {url: "jdbc:postgresql://h/d"}'


def test_tables_are_sources_and_destinations() -> None:
    file = parse(TABLES.replace("SOURCE", "table: s.orders").replace("DESTINATION", f"{DATABASE}, table: out"))
    (pipeline,) = file.project.pipelines
    assert pipeline.sources[0].where == "s.orders"
    assert (pipeline.destination.mode, pipeline.destination.data_id_column) == ("replace-chunk", "data_id")


@pytest.mark.parametrize(
    ("source", "destination", "sentence"),
    [
        ("table: a, query: SELECT 1", "path: x", "exactly one of table and query is wanted beside database"),
        ("table: a, path: x", "path: x", "a table has no path and no format"),
        ("table: a; DROP TABLE b", "path: x", "a table is written like orders, sales.orders"),
        ("table: a, connections: 4", "path: x", "needs a column to divide the rows by: write splitBy"),
        (
            "table: a, predicate: x, partitioning: {column: c, type: list}",
            "path: x",
            "one of partitioning and predicate says which rows are of the chunk, not both",
        ),
        ("table: a", "table: x", "are for tables; write the `database` that has the table"),
        ("table: a", DATABASE, "beside database a table is wanted"),
        ("table: a", f"{DATABASE}, table: x, mode: merge", "mode merge needs a table and its keys"),
        ("table: a", f"{DATABASE}, table: x, keys: [a]", "mode merge needs a table and its keys"),
        (
            "table: a",
            f"{DATABASE}, table: x, mode: append, partitioning: {{column: c, type: list}}",
            "partitioning is for mode replace-chunk",
        ),
        ("table: a", "database: {url: 'jdbc:postgresql://u:secret@h/d'}, table: x", "a password in a URL"),
        ("table: a", "database: {url: 'jdbc:postgresql://h/d', password: secret}, table: x", "a password is never"),
    ],
)
def test_what_a_table_can_not_be_is_reported(source: str, destination: str, sentence: str) -> None:
    (line,) = refusal(TABLES.replace("SOURCE", source).replace("DESTINATION", destination))
    assert sentence in line
    assert "secret" not in line
