"""The code that runs inside a sandbox. It never imports arclog, and uses the standard library only, except where
databases are served (msgspec, apsw, duckdb); `zygote` describes the process tree. The worker uses some modules too.

The folder is loaded as the top-level package `child`, so its modules use relative imports.
"""
