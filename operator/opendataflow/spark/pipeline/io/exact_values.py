"""Convert texts of files and tables to numbers and times exactly. Spark's readers would round or guess.

Spark's readers round decimals to the scale of their column, drop commas, read 1e400 as infinity and 12d as 12, and take
a number in JSON for seconds since 1970. So these columns are read as texts, and converted here with checks. A value
that does not fit raises an error with its file, its column and its text. Other types stay as Spark reads them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from opendataflow.model.projects.project import Source
from opendataflow.spark.pipeline.errors.unfit_values import LONGEST, MARK, SEPARATOR
from opendataflow.spark.pipeline.measure.checks import column_named

DATE_FORMAT = "yyyy-MM-dd"
_TIME = "yyyy-MM-dd[['T'][' ']HH:mm[:ss[.SSSSSS]]]"
TIMESTAMP_FORMAT = f"{_TIME}[XXX][XX][X]"
"""A day, perhaps with a time, and then perhaps with an offset such as Z, +01:00, +0100 or +01."""
EXACT_TIMES = {
    "dateFormat": DATE_FORMAT,
    "timestampFormat": TIMESTAMP_FORMAT,
    "timestampNTZFormat": _TIME,
    "enableDateTimeParsingFallback": "false",
}
"""Options for reading CSV and JSON. By default, Spark reads 201301 as the year, ignores text behind a day, and adds the
day of the run to 12:30."""

_WITH_EXPONENT = r"^[+-]?[0-9](\.[0-9]{1,14})?[eE][+-]?[0-9]{1,3}$"
"""At most 15 digits, which a double holds: equal doubles are equal numbers."""
_NO_NUMBER = "^(NaN|[+-]?(Infinity|Inf|INF))$"
_LETTERS = "[a-df-zA-DF-Z]"
"""Java reads numbers with a suffix, such as 12d and 12f, and hexadecimal ones."""
_OWN_NUMBERS = {"nanvalue", "positiveinf", "negativeinf", "allownonnumericnumbers"}
"""Options with which other words are numbers."""


def schema_of_texts(schema: StructType, source: Source) -> StructType:
    """Return the schema with which Spark reads the files: texts for the values that `convert_texts` converts."""
    kinds = _kinds(source)
    return StructType([StructField(it.name, _text_type(it.dataType, kinds)) for it in schema])


def convert_texts(frame: DataFrame, schema: StructType, source: Source) -> DataFrame:
    """Return the frame of files with the types of `schema`. The frame was read with `schema_of_texts`."""
    return _convert(frame, {it.name: it.dataType for it in schema}, _kinds(source), F.col("_metadata.file_path"))


def convert_columns(frame: DataFrame, types: Mapping[str, DecimalType]) -> DataFrame:
    """Return the frame of a table with these types of the columns that were read as texts."""
    return _convert(frame, types, (DecimalType,), F.lit(""))


def _kinds(source: Source) -> tuple[type[DataType], ...]:
    """Return the types that are read as texts. Spark applies modes, formats and locales of the user's own."""
    options = {name.lower(): value for name, value in source.options.items()}
    if source.format not in ("csv", "json") or options.get("mode", "failfast").lower() != "failfast":
        return ()
    kinds: list[type[DataType]] = [] if "locale" in options else [DecimalType]
    if not _OWN_NUMBERS & options.keys():
        kinds += [DoubleType, FloatType]
    if source.format == "json" and "timestampformat" not in options:
        kinds.append(TimestampType)
    return tuple(kinds)


def _text_type(kind: DataType, kinds: tuple[type[DataType], ...]) -> DataType:
    if isinstance(kind, kinds):
        return StringType()
    if isinstance(kind, ArrayType):
        return ArrayType(_text_type(kind.elementType, kinds), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _text_type(kind.valueType, kinds), kind.valueContainsNull)
    if isinstance(kind, StructType):
        return StructType([StructField(it.name, _text_type(it.dataType, kinds)) for it in kind])
    return kind


def _convert(
    frame: DataFrame, types: Mapping[str, DataType], kinds: tuple[type[DataType], ...], file: Column
) -> DataFrame:
    converted = [name for name, kind in types.items() if _text_type(kind, kinds) != kind]
    if not converted:
        return frame

    def column(name: str) -> Column:
        it = column_named(name)
        return _exact(it, types[name], kinds, _Place(file, name)).alias(name) if name in converted else it

    return frame.select(*(column(name) for name in frame.columns))


@dataclass(frozen=True)
class _Place:
    file: Column
    column: str

    def refuse(self, kind: DataType, text: Column) -> Column:
        """Return an expression that raises the error of a value."""
        shown = F.substring(text, 1, LONGEST)
        parts = (F.lit(MARK), self.file, F.lit(self.column), F.lit(kind.simpleString()), shown, F.lit(""))
        return F.raise_error(F.concat_ws(SEPARATOR, *parts))

    def below(self, name: str) -> "_Place":
        return _Place(self.file, f"{self.column}.{name}")


def _exact(it: Column, kind: DataType, kinds: tuple[type[DataType], ...], place: _Place) -> Column:
    """Return the expression that converts a column, or a part of it."""
    if _text_type(kind, kinds) == kind:
        return it
    if isinstance(kind, ArrayType):
        element = kind.elementType
        return F.transform(it, lambda each: _exact(each, element, kinds, place))
    if isinstance(kind, MapType):
        value_kind = kind.valueType
        return F.transform_values(it, lambda _, value: _exact(value, value_kind, kinds, place))
    if isinstance(kind, StructType):
        fields = [_exact(it[f.name], f.dataType, kinds, place.below(f.name)).alias(f.name) for f in kind]
        return F.when(it.isNotNull(), F.struct(*fields))
    value, fits = _convert_text(it, kind)
    return F.when(it.isNull(), F.lit(None).cast(kind)).when(fits, value).otherwise(place.refuse(kind, it).cast(kind))


def _convert_text(it: Column, kind: DataType) -> tuple[Column, Column]:
    """Return the value of a text, and whether it is the same value."""
    if isinstance(kind, DecimalType):
        return _decimal(it, kind)
    return _timestamp(it) if isinstance(kind, TimestampType) else _floating(it, kind)


def _floating(it: Column, kind: DataType) -> tuple[Column, Column]:
    """Return the nearest number of a text, and whether the text is a number in the range of its type."""
    number = it.try_cast(kind)
    finite = F.abs(number) < F.lit(float("inf")).cast(kind)  # false also for NaN
    return number, F.when(finite, ~it.rlike(_LETTERS)).otherwise(number.isNotNull() & it.rlike(_NO_NUMBER))


def _decimal(it: Column, kind: DecimalType) -> tuple[Column, Column]:
    """Return the number of a text, and whether it is the same number."""
    text, scale = F.trim(it), kind.scale
    number = text.try_cast(kind)
    fraction = rf"\.[0-9]{{0,{scale}}}0*" if scale else r"\.0*"
    plain = rf"^[+-]?([0-9]+({fraction})?|\.[0-9]{{1,{max(scale, 1)}}}0*)$"
    with_exponent = text.rlike(_WITH_EXPONENT) & (number.cast("double") == text.try_cast("double"))
    return number, number.isNotNull() & (text.rlike(plain) | with_exponent)


def _timestamp(it: Column) -> tuple[Column, Column]:
    """Return the time of a text, and whether the text is one."""
    time = F.try_to_timestamp(it, F.lit(TIMESTAMP_FORMAT))
    return time, time.isNotNull()
