"""Values that a program sends to Spark's JVM."""

import subprocess
import sys

PROGRAM = """
import sys

from opendataflow.spark.shared.values import ask_for_numpy_only_if_imported

ask_for_numpy_only_if_imported()
from py4j.protocol import INPUT_CONVERTER

def converters(value):
    return [type(each).__name__ for each in INPUT_CONVERTER if each.can_convert(value)]

assert converters("text") == []
assert not {"numpy", "pandas", "pyarrow"} & sys.modules.keys()
import numpy

print(converters(numpy.int64(1)), converters(numpy.array([1])), converters("text"))
"""


def test_pandas_is_not_imported_for_values_of_a_program_without_numpy_and_numpys_values_are_still_converted() -> None:
    shown = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True).stdout
    assert shown == "['NumpyScalarConverter'] ['NumpyArrayConverter', 'ListConverter'] []\n"
