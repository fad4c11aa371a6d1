"""How pyspark asks whether a value that it sends to the JVM is one of numpy's.

For each value, pyspark 4 imports its test tools, and they import pandas: 0.3 seconds of CPU time in a process that may
need neither. A value can be numpy's only if numpy is imported. Nothing else about values is changed here.
"""

import sys
from collections.abc import Callable
from typing import Any

_OF_NUMPY = {"NumpyScalarConverter", "NumpyArrayConverter"}


def ask_for_numpy_only_if_imported() -> None:
    """Let pyspark convert values of numpy only in a process that has imported numpy. Raises ImportError without it."""
    import pyspark.sql.types  # optional and slow to import; it registers the converters
    from py4j import protocol  # see above

    for converter in protocol.INPUT_CONVERTER:
        if type(converter).__name__ in _OF_NUMPY and type(converter).__module__ == pyspark.sql.types.__name__:
            converter.can_convert = _if_imported(converter.can_convert)


def _if_imported(can_convert: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: "numpy" in sys.modules and can_convert(value)
