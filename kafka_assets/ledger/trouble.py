"""What a database reports, as this package's errors: busy is Retryable, the rest stays what it is."""

from __future__ import annotations

import re
import ssl
from typing import Any, cast

from sqlalchemy import Connection, Engine
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError, ProgrammingError

from kafka_assets.errors import DatabaseRefused, KafkaAssetsError, LedgerBusy, SettingsError
from kafka_assets.masks import masked_url

# SQLSTATE: serialization failure, deadlock, lock not available (a timeout, too), too many connections,
# a statement's and a transaction's timeout, and the server going down, coming up or ending us. Class 08 is the
# connection itself.
_POSTGRESQL = {"40001", "40P01", "55P03", "53300", "57014", "57P01", "57P02", "57P03", "25P03", "25P04"}
# Lock wait timeout, deadlock, NOWAIT or statement timeout, too many connections, shutdown, killed, idle too long;
# 2003, 2006, 2013, 2014, 2055: the connection. 1020: MariaDB's record has changed since last read.
# 1412, 1684: somebody else's ALTER of a table that is being read or described.
_MYSQL = {
    *(1020, 1205, 1213, 1317, 1412, 1684, 3024, 3572),
    *(1040, 1053, 1927, 1969, 3169, 4031, 2003, 2006, 2013, 2014, 2055),
}
# No room: on PostgreSQL a full disk, no memory, a failing disk. On MySQL and MariaDB: a full disk (20, 1021), a write
# that failed (3, 1026, 1878), a table that cannot grow (1114), no memory (1037, 1041).
_NO_ROOM = {"53100", "53200", "58030", 3, 20, 1021, 1026, 1037, 1041, 1114, 1878}
# 1030 stands for any error of a storage engine; this one is the system's ENOSPC.
_ENGINE_ERROR, _ENGINE_FULL = 1030, re.compile(r"\b28\b|No space left")
# A primary that became a standby, or a standby that is none yet; 1290 stands for any switch of the server's.
_READ_ONLY = {"25006", 1290, 1792, 1836}
# No such table, and SQLite's word for any error in a statement.
_NO_TABLE = {"42P01", 1146, 1}
_LEDGERS_OWN = re.compile(
    r"(?:no such table|relation|Table).*\bkafka_(?:source|progress|slice|publication|claim|committed|tombstone|stall)\b"
)
# No right: in PostgreSQL; on a table, a column, a database; and one over the server.
_FORBIDDEN = {"42501", 1142, 1143, 1044, 1227}
_WORDS = {
    **dict.fromkeys(("COPY", "LOAD", "INSERT"), "INSERT into"),
    "DELETE": "DELETE from",
    "WITH": "do that to",
}
_QUOTED = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`""")
_LOCKING = re.compile(r"\bFOR (?:(?:NO KEY )?UPDATE|(?:KEY )?SHARE)\b")
# MySQL and MariaDB name the right that misses; PostgreSQL names only what it misses on, and this may be no table.
_DENIED = re.compile(r"\b([A-Z][A-Z ,]*) command denied|the (.+?) privilege\(?s?\)? for this operation")
_NO_TABLES_RIGHT = re.compile(r"permission denied (?:for|to) (?!table|view|materialized view|relation|column)|must be ")
_RIGHTS = {
    "SELECT": re.compile(r"\b(?:SELECT|RETURNING|CONFLICT)\b|^(?:UPDATE|DELETE)\b.*\bWHERE\b", re.DOTALL),
    "INSERT": re.compile(r"\bINSERT\b|^(?:COPY|LOAD)\b"),
    "UPDATE": re.compile(rf"\bUPDATE\b|{_LOCKING.pattern}"),
    "DELETE": re.compile(r"\bDELETE\b"),
}
"""The rights on tables that a statement wants, by its words."""
_MYSQL_LOST = {1053, 1927, 2003, 2006, 2013, 2014, 2055, 3169, 4031}
_ANY_SWITCH = 1290
_MYSQL_INTERRUPTED = {1317, 1969, 3024}
# Of PostgreSQL's two reasons to cancel a statement, one is the clock; the other is somebody's pg_cancel_backend.
_CANCELED = "57014"
_BY_THE_CLOCK = re.compile(r"statement timeout")
_CLOCKS: dict[int | str, tuple[str, str]] = {
    _CANCELED: ("statement_timeout", "ALTER ROLE … SET statement_timeout = '…' (0 is no limit)"),
    "25P04": ("transaction_timeout", "ALTER ROLE … SET transaction_timeout = '…' (0 is no limit)"),
    3024: ("max_execution_time", "SET GLOBAL max_execution_time = … (milliseconds; 0 is no limit)"),
    1969: (
        "max_statement_time",
        "ALTER USER … WITH MAX_STATEMENT_TIME …, or SET GLOBAL max_statement_time = … (seconds; 0 is no limit)",
    ),
}
"""The setting that ends what takes too long, and how it is raised."""
_MET = "kafka_assets_trouble"
_SQLITE_BUSY, _SQLITE_LOCKED, _SQLITE_READONLY, _SQLITE_IOERR, _SQLITE_FULL, _SQLITE_NOTADB = 5, 6, 8, 10, 13, 26
_FILE_ASKED = 2068
PACKET_TOO_LARGE = 1153
"""MySQL's and MariaDB's word for a statement beyond max_allowed_packet; the connection goes with it."""
# Logins and databases that the server refuses, and TLS that it does not speak.
_MYSQL_ANSWERED = {1044, 1045, 1049, 1251, 1698, 2026, 2059}
# psycopg gives no SQLSTATE for a refused login or a wrong option: libpq's own words are all there is.
_POSTGRESQL_ANSWERED = re.compile(
    "authentication failed|does not exist|no password supplied|no pg_hba.conf|not permitted to log in"
    r"|invalid [\w ]+ value|invalid connection option|invalid port|invalid URI|missing \"|does not support SSL"
    "|certificate verify failed|does not match host name|could not (?:read|load|open) |has group or world access"
)
# Too many connections: of the server, of one user, of one user's own limit.
_CROWDED = {1040, 1203, 1226}
_POSTGRESQL_CROWDED = re.compile("too many (?:connections|clients)|remaining connection slots")


def translate(error: DBAPIError) -> KafkaAssetsError | None:
    """This package's error for what the driver raised; None where it is no trouble of the database's own."""
    code = code_of(error)
    return _file_asked(error) if code == _FILE_ASKED else _busy(error, code) or _refused(error, code)


def _busy(error: DBAPIError, code: int | str | None) -> LedgerBusy | None:
    """What passes by itself, or by what somebody does on the server."""
    if code in _READ_ONLY and (code != _ANY_SWITCH or "read" in _said(error)):
        return LedgerBusy(
            "the database takes no writes at the moment",
            why=_said(error),
            cure="the whole transaction is tried again on a new connection, as after a failover; if it stays so, "
            "correct KAFKA_ASSETS_DATABASE_URL: it must lead to the primary",
        )
    if _without_room(error, code):
        return LedgerBusy(
            "the database has no room to write",
            why=_said(error),
            cure="make room on the disk of its files: nothing of this was written. The sensor and `live` try it again "
            "by themselves, a command wants to be run again",
        )
    if (late := _too_late(error, code)) is not None:
        return late
    if lost(error) or code in _POSTGRESQL or code in _MYSQL or code in {_SQLITE_BUSY, _SQLITE_LOCKED}:
        return LedgerBusy(
            "the database was busy, or went away",
            why=_said(error),
            cure="the whole transaction is tried again; if it stays so, look for a long or frozen transaction",
        )
    return None


def _too_late(error: DBAPIError, code: int | str | None) -> LedgerBusy | None:
    """What the server has ended because it took longer than a setting allows; the same may be faster another time."""
    if code not in _CLOCKS or (code == _CANCELED and not _BY_THE_CLOCK.search(_said(error))):
        return None
    name, raised = _CLOCKS[code]
    return LedgerBusy(
        f"the database allows less time than was needed: {name}",
        why=_said(error),
        cure=f"raise {name} for the user of KAFKA_ASSETS_DATABASE_URL: {raised}. The whole transaction is tried again, "
        "and fails by the same until then, unless the server was only slow for a while",
    )


def _refused(error: DBAPIError, code: int | str | None) -> KafkaAssetsError | None:
    """What stays so until somebody gives a right, or chooses another file."""
    # A policy on rows has the same SQLSTATE, and is about these rows.
    if code in _FORBIDDEN and "row-level security" not in _said(error):
        return _forbidden(error)
    if code == _SQLITE_READONLY:
        return SettingsError(
            "the database cannot be written", why=_said(error), cure="give this user write access to file and folder"
        )
    if code == _SQLITE_NOTADB:
        return SettingsError("the file is no SQLite database", why=_said(error), cure="choose another file")
    if code in _NO_TABLE and _LEDGERS_OWN.search(_said(error)):
        return SettingsError(
            "the database has not the ledger's tables",
            why=f"{_said(error)}; another database may answer in its place, or its file was replaced",
            cure="see that KAFKA_ASSETS_DATABASE_URL leads to the database that has the ledger; only for a new one "
            "run `kafka-assets db init`",
        )
    return None


def remember(context: ExceptionContext) -> None:
    """Keep in mind that this connection has met trouble of the database's own, whoever catches the error."""
    error, connection = context.sqlalchemy_exception, context.connection
    if connection is None or connection.invalidated:
        return
    if isinstance(error, DBAPIError) and translate(error) is not None:
        connection.info[_MET] = True


def met(connection: Connection, *, anew: bool = False) -> bool:
    """Whether this connection has met such trouble, or is lost, since it was last asked for `anew`."""
    if connection.invalidated:
        return True
    return bool(connection.info.pop(_MET, False) if anew else connection.info.get(_MET))


def undecided(error: DBAPIError) -> bool:
    """Whether a COMMIT that ended so may have committed: the connection went, or the statement was interrupted."""
    return lost(error) or code_of(error) in _MYSQL_INTERRUPTED


def lost(error: DBAPIError) -> bool:
    """Whether the connection went with the error, so that what it was doing may have happened or not."""
    code = code_of(error)
    if isinstance(code, int) and code in _MYSQL_LOST:
        return True
    if isinstance(code, str) and (code.startswith(("08", "57P0")) or code in {"25P03", "25P04"}):
        return True
    return bool(error.connection_invalidated)


def refused_connection(engine: Engine, error: DBAPIError | OSError) -> KafkaAssetsError:
    """Why no connection was to be had: Retryable where the server may come back, else a setting is wrong."""
    url = masked_url(engine.url.render_as_string(hide_password=False))
    said = _said(error) if isinstance(error, DBAPIError) else str(error)
    if engine.dialect.name == "sqlite":
        known = translate(error) if isinstance(error, DBAPIError) else None
        return known or SettingsError(
            f"the database {engine.url.database} cannot be opened",
            why=said,
            cure="choose a file in a folder that this user may write",
        )
    if isinstance(error, DBAPIError) and code_of(error) == _FILE_ASKED:
        return _file_asked(error)
    if isinstance(error, DBAPIError) and (late := _too_late(error, code_of(error))) is not None:
        return late  # the first questions that a new connection asks
    if _answered(error, said):
        return SettingsError(
            f"the database at {url} refused the connection", why=said, cure="correct KAFKA_ASSETS_DATABASE_URL"
        )
    if isinstance(error, DBAPIError) and (code_of(error) in _CROWDED or _POSTGRESQL_CROWDED.search(said)):
        return LedgerBusy(
            f"the database at {url} takes no more connections",
            why=said,
            cure="end some of its clients, or raise its limit: max_connections, or that of this user",
        )
    return LedgerBusy(
        f"the database at {url} does not answer",
        why=said,
        cure="start it (`kafka-assets up --with …` for a local one), or correct KAFKA_ASSETS_DATABASE_URL",
    )


def _answered(error: DBAPIError | OSError, said: str) -> bool:
    """Whether the connection fails in the same way until somebody acts."""
    # A file that the URL names, or an option that it has: what the network says, the drivers say in other errors.
    if isinstance(error, (OSError, ProgrammingError)):
        return True
    original = cast(Any, error.orig)
    if isinstance(getattr(original, "original_exception", None), ssl.SSLCertVerificationError):
        return True
    return code_of(error) in _MYSQL_ANSWERED or _POSTGRESQL_ANSWERED.search(said) is not None


def _without_room(error: DBAPIError, code: int | str | None) -> bool:
    if hasattr(error.orig, "sqlite_errorcode"):
        return code in {_SQLITE_FULL, _SQLITE_IOERR}
    return code in _NO_ROOM or (code == _ENGINE_ERROR and _ENGINE_FULL.search(_said(error)) is not None)


def _file_asked(error: DBAPIError) -> SettingsError:
    return SettingsError(
        "the database's server asked for a file of this machine",
        why=f"{_said(error)}; no real server does so unasked: somebody else answers in its place, or it was taken over",
        cure="do not connect again before you know who answers there; with ?ssl_ca=… in the URL nobody else can",
    )


def _forbidden(error: DBAPIError) -> DatabaseRefused:
    doing, rights = _kind_of(error.statement or ""), _missing(error)
    lacks = {0: "", 1: f": it lacks the right {''.join(rights)}"}
    one_of = f": it lacks one of the rights {', '.join(rights)}"
    return DatabaseRefused(
        f"the database's user may not {doing} what is named here{lacks.get(len(rights), one_of)}",
        why=_said(error),
        cure="GRANT it that right on the table (the target's and the ledger's want SELECT, INSERT, UPDATE and DELETE), "
        "or let KAFKA_ASSETS_DATABASE_URL name a user that has it",
    )


def _kind_of(statement: str) -> str:
    """What a statement does, as a word for people."""
    first = statement.split(maxsplit=1)[:1]
    if not first:
        return "do that to"
    word = first[0].upper()
    locks = _LOCKING.search(_bare(statement))
    return f"{word} … {locks[0]}" if locks else _WORDS.get(word, word)


def _missing(error: DBAPIError) -> list[str]:
    """The right that the server says is missing; else those of which one is, as far as the statement tells."""
    said, statement = _said(error), _bare(error.statement or "")
    if named := _DENIED.search(said):
        return [named[1] or named[2]]
    if not statement.startswith(("SELECT", "INSERT", "UPDATE", "DELETE", "COPY", "LOAD", "WITH", "MERGE")):
        return []
    if _NO_TABLES_RIGHT.search(said) or isinstance(code_of(error), int):
        return []
    return [right for right, wants in _RIGHTS.items() if wants.search(statement)]


def _bare(statement: str) -> str:
    """The statement's own words, in capitals: without names and values in quotes."""
    return _QUOTED.sub("?", statement).strip().upper()


def code_of(error: DBAPIError) -> int | str | None:
    """SQLSTATE on PostgreSQL, the error number on MySQL and MariaDB, the primary result code on SQLite."""
    original = cast(Any, error.orig)
    number = original.args[0] if original is not None and original.args else None
    if isinstance(number, int):  # before the SQLSTATE, which pymysql has, too: a lock timeout's is a mere HY000
        return number
    result = getattr(original, "sqlite_errorcode", None)
    if isinstance(result, int):
        return result & 0xFF
    state = getattr(original, "sqlstate", None)
    return state if isinstance(state, str) else None


def _said(error: DBAPIError) -> str:
    return str(error.orig).strip()
