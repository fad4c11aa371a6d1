"""The address of a database in a project: variables of a run fill it in, and change nothing else of it."""

import pytest

from opendataflow.errors import StepFailed
from opendataflow.model.projects.database import Database
from opendataflow.spark.pipeline.storage.database_login import resolve_login

URL = "jdbc:postgresql://${host}/${name}?currentSchema=sales"


def url_of(url: str, **environ: str) -> str:
    return resolve_login(Database(url=url), "project.yml", environ).url


@pytest.mark.parametrize("host", ["db.example.com:5432", "a:1,b:2", "[::1]:5432", "10.0.0.1"])
def test_a_variable_is_a_host_or_the_name_of_a_database(host: str) -> None:
    assert url_of(URL, host=host, name="shop-é 1") == f"jdbc:postgresql://{host}/shop-é 1?currentSchema=sales"


def test_a_variable_is_a_whole_url_that_the_project_may_continue() -> None:
    assert url_of("${shop}&user=x", shop="jdbc:postgresql://h/d?sslmode=require") == (
        "jdbc:postgresql://h/d?sslmode=require&user=x"
    )


@pytest.mark.parametrize(
    ("name", "sign"),
    [("d?socketFactory=a.B", "?"), ("d&user=x", "&"), ("d;INIT=x", ";"), ("d%3Fx", "%"), ("a/b", "/"), ("a\nb", "\\n"),
     ("h@evil", "@"), ("d)(x", ")"), ("d#", "#"), ("a\\b", "\\\\")],
)  # fmt: skip
def test_a_variable_adds_no_parameter_and_no_other_host(name: str, sign: str) -> None:
    with pytest.raises(StepFailed) as refused:
        url_of(URL, host="h", name=name)
    assert f"project.yml: the variable name has the character '{sign}', which could change" in str(refused.value)
    assert name not in str(refused.value)
