"""What the SQL of tasks and transfers may do on a SQLite connection, in the worker or in a process of its own.

Invariants: a text is one statement. A connection attaches only files that its tasks may open, and changes only itself
and its databases, since other connections of the process belong to other tasks and to arclog.
"""

# Stand-alone and light: the package has another name where it runs.
# ruff: noqa: TID252

from __future__ import annotations

import apsw

from ..reach import Reach, not_ours
from ..sql_errors import Refused

#: Pragmas that concern the connection or its databases. Others limit the memory of the process, name folders, or let a
#: damaged database harm it (mmap_size, writable_schema). SQLite's own modules need data_version and page_size.
_PRAGMAS = frozenset(
    {"analysis_limit", "application_id", "auto_vacuum", "automatic_index", "busy_timeout", "cache_size", "cache_spill"}
    | {"case_sensitive_like", "cell_size_check", "checkpoint_fullfsync", "collation_list", "compile_options"}
    | {"data_version", "database_list", "defer_foreign_keys", "encoding", "foreign_key_check", "foreign_key_list"}
    | {"foreign_keys", "freelist_count", "fullfsync", "function_list", "ignore_check_constraints", "incremental_vacuum"}
    | {"index_info", "index_list", "index_xinfo", "integrity_check", "journal_mode", "journal_size_limit"}
    | {"legacy_alter_table", "locking_mode", "max_page_count", "module_list", "optimize", "page_count", "page_size"}
    | {"pragma_list", "query_only", "quick_check", "read_uncommitted", "recursive_triggers"}
    | {"reverse_unordered_selects", "secure_delete", "shrink_memory", "synchronous", "table_info", "table_list"}
    | {"table_xinfo", "temp_store", "trusted_schema", "user_version", "wal_autocheckpoint", "wal_checkpoint"}
)
#: Longest part of a name in a message.
_SHOWN = 60


class SqliteAccess:
    """The rules of one connection."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        #: a statement attaches a file whose name is unknown before it runs
        self._attaches_unknown = False
        #: why a statement was refused; SQLite's own error does not tell
        self.refusal: Refused | None = None

    def apply_to(self, connection: apsw.Connection) -> None:
        """Enforce the rules from now on. SQLite asks for each statement before it runs."""
        attach, pragma = apsw.SQLITE_ATTACH, apsw.SQLITE_PRAGMA
        fine, deny, ignore = apsw.SQLITE_OK, apsw.SQLITE_DENY, apsw.SQLITE_IGNORE

        def decision(action: int, name: str | None, value: str | None, _: str | None, __: str | None) -> int:
            if action == attach:
                return fine if self._may_attach(name) else deny
            if action != pragma:
                return fine
            if not self._may_use(name or ""):
                return deny
            # It would replace the handler that ends the wait for a lock when an attempt is cancelled.
            return ignore if value is not None and (name or "").lower() == "busy_timeout" else fine

        connection.authorizer = decision

    def before(self, sql: str, statement: str) -> None:
        """Check that SQLite takes a whole text for one statement, before it runs. Raises Refused."""
        if sql[len(statement) :].strip(" \t\r\n\f;"):
            raise Refused("config", f"SQLite reads several statements where one was found: {sql[:200]}")

    def check_attached(self, connection: apsw.Connection) -> None:
        """Check files whose names came from an expression. They are attached but not yet read. Raises Refused."""
        if self._attaches_unknown:
            self._attaches_unknown = False
            for name in connection.db_names():
                not_ours(connection.db_filename(name) or "", self._reach)

    def _may_attach(self, name: str | None) -> bool:
        """Decide about an ATTACH, or a VACUUM INTO, which is one. The name is known if it is a literal text."""
        if name is None and self._reach.write is None:
            self._attaches_unknown = True
            return True
        try:
            if name is None:
                message = "ATTACH: on this worker, the name of the file must be a text in quotes, not a value or an expression"
                raise Refused("config", message)
            not_ours(name, self._reach)
        except Refused as refusal:
            self.refusal = refusal
            return False
        return True

    def _may_use(self, pragma: str) -> bool:
        if pragma.lower() in _PRAGMAS:
            return True
        message = (
            f"PRAGMA {pragma[:_SHOWN]} cannot be used in a task: only pragmas of the database and its connection can"
        )
        self.refusal = Refused("config", message)
        return False
