"""The engine of a transformation, inferred from the type hints of its run()."""

import importlib.util
from pathlib import Path

import pytest

from opendataflow.spark.pipeline.project.type_hints import infer_engine

LATER = "from __future__ import annotations\n"
CHECKED = (
    "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pandas as pd\n    import nowhere_to_be_found\n"
)


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("def run(df): return df", "spark"),
        ("def run(df: 'no such hint', other: 'nowhere.Frame' = None): return df", "spark"),
        ("import pandas as pd\ndef run(df: pd.DataFrame): return df", "pandas"),
        ("import pandas as pd\ndef run(df: 'pd.DataFrame', other: 'nowhere.Frame'): return df", "pandas"),
        ("import pandas as pd\ndef run(df) -> pd.DataFrame: return df", "pandas"),
        ("import pandas as pd, typing\ndef run(df: typing.Optional['pd.DataFrame']): return df", "pandas"),
        (f"{LATER}{CHECKED}def run(df: pd.DataFrame | None): return df", "pandas"),
        (f"{CHECKED}class Run:\n    def __call__(self, df: 'pd.DataFrame'): return df\nrun = Run()", "pandas"),
        (f"{CHECKED}import functools as f\ndef _run(n, df: 'pd.DataFrame'): pass\nrun = f.partial(_run, 1)", "pandas"),
        ("from pyspark.sql import DataFrame\ndef run(df: DataFrame) -> DataFrame: return df", "spark"),
    ],
)  # fmt: skip
def test_pandas_is_seen_in_whatever_way_it_is_written(tmp_path: Path, text: str, engine: str) -> None:
    (tmp_path / "step.py").write_text(text)
    spec = importlib.util.spec_from_file_location("step", tmp_path / "step.py")
    assert spec is not None and spec.loader is not None  # noqa: PT018 # for mypy
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert infer_engine(module.run, module) == engine
