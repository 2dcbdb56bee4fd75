"""UDFs at the top of a file: made before there is a session, and before it is known of which kind it will be.

PySpark (4.2.0) decides when a UDF is made. With a return type in words (`@pandas_udf("string")`) it asks a session,
and fails where none is there, as when a file is read for `kafka-assets lag`; and one that was made for a classic
session fails on Spark Connect. Here both are decided when the UDF is used.

It looks for pandas' or Arrow's types among the annotations of each `@udf`, too, and warns where a function has plain
ones (`amount: Decimal`): it is an ordinary UDF then, as it was meant to be, and nobody wants a line of that each run.
"""

from __future__ import annotations

import warnings
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.errors import PySparkRuntimeError
from pyspark.sql.udf import UserDefinedFunction
from pyspark.sql.utils import is_remote

_NO_SESSION = {"SESSION_OR_CONTEXT_NOT_EXISTS", "NO_ACTIVE_OR_DEFAULT_SESSION"}
_call = UserDefinedFunction.__call__
_connect: WeakKeyDictionary[UserDefinedFunction, Any] = WeakKeyDictionary()


def install() -> None:
    """From here on UDFs may be made before a session; to be called again before files are read.

    Spark Connect's own are looked after only where the process has it already: to import it takes 0.15 s.
    """
    warnings.filterwarnings("ignore", "Cannot infer the eval type from type hints", UserWarning, r"pyspark\.sql\.")
    _patched(UserDefinedFunction)
    UserDefinedFunction.__call__ = _called  # type: ignore[method-assign]
    if is_remote():
        from pyspark.sql.connect.udf import UserDefinedFunction as ConnectFunction

        _patched(ConnectFunction)


def _called(self: Any, *args: Any, **named: Any) -> Any:
    if not is_remote():
        return _call(self, *args, **named)
    made = _connect.get(self)
    if made is None or made.deterministic != self.deterministic:
        from pyspark.sql.connect.udf import UserDefinedFunction as ConnectFunction

        made = _connect[self] = ConnectFunction(
            self.func,
            returnType=self._returnType,
            name=self._name,
            evalType=self.evalType,
            deterministic=self.deterministic,
        )
    return made(*args, **named)


def _patched(kind: Any) -> None:
    """While nobody has a session that reads it, a return type stays the words that it was given in."""
    read = kind.returnType.fget
    if read.__module__ == __name__:
        return

    def return_type(self: Any) -> Any:
        try:
            return read(self)
        except PySparkRuntimeError as error:
            if error.getCondition() not in _NO_SESSION:
                raise
            return self._returnType

    kind.returnType = property(return_type)
