"""Kind python: which values become JSON, and how those that cannot are refused. Real processes, the real libraries."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from arclog.model.config.settings import Settings
from arclog.model.outcome import Outcome
from arclog.results.memory import MemoryResults
from arclog.tools.python import PythonConfig, PythonTool
from tests.unit.sandbox.support import context

IMPORTS = """
import datetime as dt, decimal, enum, pathlib, uuid, collections, dataclasses, typing
from decimal import Decimal as D
"""
CLASSES = """
@dataclasses.dataclass
class Point:
    x: int
    at: dt.date
    kind: typing.ClassVar[str] = "point"
class Pair(typing.NamedTuple):
    left: int
    right: set
class Colour(enum.Enum):
    RED = 1
class Word(str, enum.Enum):
    HI = "hi"
zone = dt.timezone(dt.timedelta(hours=2))
"""


class Python:
    """A tool, and where its results go."""

    def __init__(self, scratch: Path) -> None:
        self.tool = PythonTool(Settings(), scratch)
        self.results = MemoryResults()

    async def __call__(self, code: str, **more: Any) -> Outcome:
        # One execution for all: its process has imported the libraries by then.
        return await self.tool.run(PythonConfig(code=code), context(results=self.results, **more))

    async def value(self, code: str, **more: Any) -> Any:
        outcome = await self(code, **more)
        assert outcome.error is None, outcome.error.message
        assert outcome.stored is None
        return outcome.result

    async def message(self, code: str) -> str:
        outcome = await self(code)
        assert outcome.error is not None, outcome.result
        assert (outcome.error.kind, outcome.error.code) == ("exception", "NotJSON")
        return outcome.error.message

    async def stored(self, code: str) -> list[Any]:
        outcome = await self(code)
        assert outcome.error is None, outcome.error.message
        assert outcome.result is None
        return await self.results.items("default", outcome.stored.sha256, 0, outcome.stored.rows)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def python(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Python]:
    python = Python(tmp_path_factory.mktemp("python") / "scratch")
    yield python
    await python.tool.close()


pytestmark = pytest.mark.asyncio(loop_scope="module")

STANDARD = [
    ("D('1.5')", 1.5),
    ("D('7')", 7),
    ("D('0.1')", 0.1),
    ("D('0.10000000000000000001')", "0.10000000000000000001"),
    ("D('12345678901234567890.5')", "12345678901234567890.5"),
    ("D('9223372036854775807')", 2**63 - 1),
    ("D('9223372036854775808')", "9223372036854775808"),
    ("D('1E+1000000')", "1E+1000000"),
    ("D('-0.5')", -0.5),
    ("dt.datetime(2027, 1, 2, 3, 4, 5, 600)", "2027-01-02T03:04:05.000600"),
    ("dt.datetime(2027, 1, 2, tzinfo=zone)", "2027-01-02T00:00:00+02:00"),
    ("dt.date(2027, 1, 2)", "2027-01-02"),
    ("dt.time(3, 4)", "03:04:00"),
    ("dt.timedelta(days=3, hours=4, minutes=5, seconds=6.5)", "P3DT4H5M6.5S"),
    ("dt.timedelta(seconds=-90)", "-PT1M30S"),
    ("dt.timedelta(0)", "PT0S"),
    ("uuid.UUID(int=1)", "00000000-0000-0000-0000-000000000001"),
    ("pathlib.Path('/a/ü')", "/a/ü"),
    ("pathlib.PureWindowsPath('c:/x')", "c:\\x"),
    ("{3, 1, 2}", [1, 2, 3]),
    ("frozenset({'b', 'a'})", ["a", "b"]),
    ("{1, 'a', None}", [None, 1, "a"]),
    ("{(2, 1), (1, 2)}", [[1, 2], [2, 1]]),
    ("{dt.date(2027, 1, 2), dt.date(2026, 1, 2)}", ["2026-01-02", "2027-01-02"]),
    ("Point(1, dt.date(2027, 1, 2))", {"x": 1, "at": "2027-01-02"}),
    ("Pair(1, {2, 1})", {"left": 1, "right": [1, 2]}),
    ("{1: 'a', 2.5: 'b', True: 'c'}", {"1": "c", "2.5": "b"}),
    ("{None: 1, False: 2}", {"null": 1, "false": 2}),
    ("{dt.date(2027, 1, 2): 1, uuid.UUID(int=1): 2}", {"2027-01-02": 1, "00000000-0000-0000-0000-000000000001": 2}),
    ("{D('1.50'): 1, pathlib.Path('a'): 2, Word.HI: 3}", {"1.5": 1, "a": 2, "hi": 3}),
    ("Word.HI", "hi"),
    ("{'deep': [{'a': (D('1'), {1})}]}", {"deep": [{"a": [1, [1]]}]}),
    ("collections.Counter('aab')", {"a": 2, "b": 1}),
]


@pytest.mark.parametrize(("expression", "expected"), STANDARD)
async def test_values_of_the_standard_library(python: Python, expression: str, expected: Any) -> None:
    value = await python.value(f"{IMPORTS}{CLASSES}result = {expression}")
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("[float('nan')]", "result[0]: nan is not JSON; return None or a string instead"),
        ("{'x': float('-inf')}", "result.x: -inf is not JSON; return None or a string instead"),
        ("{'x': {D('NaN')}}", "result.x[0]: nan is not JSON"),
        ("D('sNaN')", "result: nan is not JSON"),
        ("D('Infinity')", "result: inf is not JSON"),
        ("{1: 'a', '1': 'b'}", "result: two keys become '1' as text; give them different names"),
        ("{'a': {(1, 2): 3}}", "result.a: the key (1, 2): tuple is not JSON"),
        ("{float('nan'): 1}", "result: the key nan: nan is not JSON"),
        ("{'a b': [b'']}", "result['a b'][0]: bytes is not JSON; convert it, e.g. with .decode() or base64"),
        ("Colour.RED", "result: Colour is not JSON; return its .value"),
        ("Point(1, [object()])", "result.at[0]: object is not JSON; convert it, e.g. to a dict, a list or a string"),
        ("Point", "result: type is not JSON; return the value of its call"),
        ("Pair(1, {b'x'})", "result.right[0]: bytes is not JSON"),
        ("pathlib.Path('a\\udc80')", "result: the text holds a lone surrogate"),
        ("{'x': 1j}", "result.x: complex is not JSON; convert it, e.g. with str()"),
        ("range(3)", "result: range is not JSON; convert it, e.g. with list()"),
    ],
)
async def test_refusals_name_the_place_and_the_remedy(python: Python, expression: str, message: str) -> None:
    assert (await python.message(f"{IMPORTS}{CLASSES}result = {expression}")).startswith(message)


async def test_an_object_that_holds_itself(python: Python) -> None:
    code = f"{IMPORTS}{CLASSES}result = Point(1, None)\nresult.at = [result]"
    assert await python.message(code) == "result.at[0]: the Point contains itself, which JSON cannot represent"


async def test_items_of_a_generator_are_converted_too(python: Python) -> None:
    code = f"{IMPORTS}def main():\n    yield D('1.5')\n    yield {{dt.date(2027, 1, 2): {{2, 1}}}}\n"
    assert await python.value(code) == [1.5, {"2027-01-02": [1, 2]}]
    assert (await python.message(code + "    yield [D('NaN')]")).startswith("result[2][0]: nan is not JSON")


NUMPY = [
    ("np.int64(2**53 + 1)", 2**53 + 1),
    ("np.uint64(2**64 - 1)", 2**64 - 1),
    ("np.int8(-1)", -1),
    ("np.float64(0.1)", 0.1),
    ("np.float32(0.5)", 0.5),
    ("np.float32(0.1)", 0.10000000149011612),
    ("np.float16(1.5)", 1.5),
    ("np.longdouble('0.5')", 0.5),
    ("np.longdouble('0.1')", "0.1"),
    ("np.bool_(True)", True),
    ("np.str_('x')", "x"),
    ("np.datetime64('2027-01-02T03:04:05.000000001')", "2027-01-02T03:04:05.000000001"),
    ("np.datetime64('2027-01')", "2027-01"),
    ("np.timedelta64(90, 's')", "PT1M30S"),
    ("np.timedelta64(-5, 'ns')", "-PT0.000000005S"),
    ("np.array([[1, 2], [3, 4]])", [[1, 2], [3, 4]]),
    ("np.array(['2027-01-02'], 'datetime64[ns]')", ["2027-01-02T00:00:00.000000000"]),
    ("np.array(5)", 5),
    ("np.array([True, False])", [True, False]),
    ("{'a': [np.int32(1)], np.int64(2): np.arange(2)}", {"a": [1], "2": [0, 1]}),
    ("np.ma.masked_array([1, 2], [False, True])", [1, None]),
]


@pytest.mark.parametrize(("expression", "expected"), NUMPY)
async def test_values_of_numpy(python: Python, expression: str, expected: Any) -> None:
    value = await python.value(f"import numpy as np\nresult = {expression}")
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("{'x': np.float32('nan')}", "result.x: nan is not JSON"),
        ("np.array([1.0, np.inf])", "result[1]: inf is not JSON"),
        ("np.datetime64('NaT')", "result: datetime64 is not JSON"),
        ("np.timedelta64('NaT')", "result: timedelta64 is not JSON"),
        ("np.timedelta64(5, 'ps')", "result: timedelta64 is not JSON"),
        ("np.timedelta64(1, 'M')", "result: timedelta64 is not JSON"),
        ("np.complex128(1)", "result: complex128 is not JSON; convert it, e.g. with str()"),
        ("np.array([(1, 2.0)], [('a', int), ('b', float)])", "result[0]: void is not JSON"),
    ],
)
async def test_refusals_of_numpy(python: Python, expression: str, message: str) -> None:
    assert (await python.message(f"import numpy as np\nresult = {expression}")).startswith(message)


FRAME = """
import datetime as dt
columns = {"id": [1, 2, 3], "name": ["a", None, "c"], "score": [0.5, 1.5, None],
           "at": [dt.datetime(2027, 1, 2), None, dt.datetime(2027, 1, 3, 4)]}
"""
TABLES = {
    "pandas": FRAME + "import pandas as pd\nresult = pd.DataFrame(columns)",
    "polars": FRAME + "import polars as pl\nresult = pl.DataFrame(columns)",
    "arrow": FRAME + "import pyarrow as pa\nresult = pa.table(columns)",
    "batch": FRAME + "import pyarrow as pa\nresult = pa.RecordBatch.from_pydict(columns)",
    "reader": FRAME + "import pyarrow as pa\nresult = pa.table(columns).to_reader()",
}
ROWS = [
    {"id": 1, "name": "a", "score": 0.5, "at": "2027-01-02T00:00:00"},
    {"id": 2, "name": None, "score": 1.5, "at": None},
    {"id": 3, "name": "c", "score": None, "at": "2027-01-03T04:00:00"},
]


@pytest.mark.parametrize("library", TABLES)
async def test_tables_are_lists_of_rows(python: Python, library: str) -> None:
    assert await python.value(TABLES[library]) == ROWS


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
async def test_tables_inside_of_other_values(python: Python, library: str) -> None:
    code = f"{TABLES[library]}\nresult = {{'table': result, 'n': 1}}"
    assert await python.value(code) == {"table": ROWS, "n": 1}


LARGE = {
    "pandas": "import pandas as pd\nresult = pd.DataFrame({'i': range(20_000)})",
    "polars": "import polars as pl\nresult = pl.DataFrame({'i': range(20_000)})",
    "arrow": "import pyarrow as pa\nresult = pa.table({'i': list(range(20_000))})",
    "batch": "import pyarrow as pa\nresult = pa.RecordBatch.from_pydict({'i': list(range(20_000))})",
}


@pytest.mark.parametrize("library", LARGE)
async def test_large_tables_are_streamed_to_the_result_store(python: Python, library: str) -> None:
    rows = await python.stored(LARGE[library])
    assert rows == [{"i": i} for i in range(20_000)]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("pd.DataFrame({'city': ['a', 'b', 'a'], 'n': [1, 2, 3]}).groupby('city').sum()", [{"city": "a", "n": 4}, {"city": "b", "n": 2}]),
        ("pd.DataFrame({'n': [1]}, index=['only'])", [{"n": 1}]),
        ("pd.DataFrame({0: [1], 1: [2]})", [{"0": 1, "1": 2}]),
        ("pd.DataFrame({'n': pd.array([1, None], 'Int64'), 'c': pd.Categorical(['x', None])})", [{"n": 1, "c": "x"}, {"n": None, "c": None}]),
        ("pd.DataFrame({'t': [pd.Timestamp('2027-01-02', tz='UTC')], 'd': [pd.Timedelta('1s 5ns')]})", [{"t": "2027-01-02T00:00:00+00:00", "d": "PT1.000000005S"}]),
        ("pd.DataFrame(index=range(2))", [{}, {}]),
        ("pd.DataFrame({'a': []})", []),
        ("pd.Series([1.0, None], name='s')", [1.0, None]),
        ("pd.Index(['a', 'b'])", ["a", "b"]),
        ("pl.DataFrame({'l': [[1, None]], 's': [{'a': 1}], 'd': [dt.timedelta(seconds=1)]})", [{"l": [1, None], "s": {"a": 1}, "d": "PT1S"}]),
        ("pl.DataFrame({'m': [D('1.25')]}, schema={'m': pl.Decimal(30, 2)})", [{"m": 1.25}]),
        ("pl.Series([1, None])", [1, None]),
        ("pa.table({'m': pa.array([D('0.1')], pa.decimal128(38, 20))})", [{"m": 0.1}]),
        ("[pa.scalar(5), pa.scalar(None), pa.chunked_array([[1], [None]])]", [5, None, [1, None]]),
    ],
)  # fmt: skip
async def test_what_tables_hold(python: Python, code: str, expected: Any) -> None:
    imports = "import datetime as dt, pandas as pd, polars as pl, pyarrow as pa\nfrom decimal import Decimal as D\n"
    assert await python.value(f"{imports}result = {code}") == expected


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("pd.DataFrame([[1, 2]], columns=['a', 'a'])", "result: two columns are called 'a'; rename one of them"),
        ("pa.table([[1], [2]], names=['a', 'a'])", "result: two columns are called 'a'; rename one of them"),
        ("pd.DataFrame({('a', 1): [1]})", "result: the key ('a', 1): tuple is not JSON"),
        ("pl.DataFrame({'x': [1.0, float('nan')]})", "result[1].x: nan is not JSON; return None or a string instead"),
        ("pl.DataFrame({'x': [b'a']})", "result[0].x: bytes is not JSON"),
        ("pl.LazyFrame({'x': [1]})", "result: LazyFrame is not JSON; return its .collect()"),
        ("pa.table({'x': [float('inf')]})", "result[0].x: inf is not JSON"),
        ("{'t': pd.NaT}", "result.t: NaTType is not JSON; return None instead"),
        ("[pd.NA]", "result[0]: NAType is not JSON; return None instead"),
        ("{'f': pd.DataFrame({'x': [[float('nan')]]})}", "result.f[0].x[0]: nan is not JSON"),
    ],
)
async def test_refusals_of_tables(python: Python, code: str, message: str) -> None:
    imports = "import pandas as pd, polars as pl, pyarrow as pa\n"
    assert (await python.message(f"{imports}result = {code}")).startswith(message)


async def test_nothing_is_imported_for_plain_values(python: Python) -> None:
    names = ("numpy", "pandas", "polars", "pyarrow", "decimal", "uuid", "pathlib", "datetime", "dataclasses")
    code = f"import sys\nresult = [name for name in {names} if name in sys.modules]"
    assert await python.value(code, execution_id="12") == []
