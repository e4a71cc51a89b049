"""The table of all settings. Environment variables, `arclog.toml`, flags and docs use it.

A setting's environment variable is `ARCLOG_` + its name in capitals with dots as underscores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from arclog.model.errors import SettingsError


class Setting(Struct, frozen=True):
    """One row of the table."""

    name: str
    default: Any
    unit: str
    help: str
    #: minimum of a number
    minimum: float | None = None
    choices: tuple[str, ...] = ()
    #: its environment variable, if that does not follow from the name
    known_as: str = ""

    @property
    def variable(self) -> str:
        return self.known_as or "ARCLOG_" + self.name.replace(".", "_").upper()


KIB = 1024
MIB = 1024 * KIB
#: Minimum of `limits.max_payload_bytes`: an event needs room for its envelope, a reference and an error.
LEAST_EVENT_BYTES = 4 * KIB

# fmt: off
TABLE: tuple[Setting, ...] = (
    Setting("home", ".arclog", "path", "Folder of the local data: the SQLite store (`arclog.db`), stored results, keys and environments."),
    Setting("scope.tenant", "default", "name", "Tenant of runs started without one."),
    Setting("scope.project", "default", "name", "Project of runs started without one."),
    Setting("scope.environment", "local", "name", "Environment of runs started without one."),
    Setting("run.progress_s", 5.0, "seconds", "How often `arclog run` prints the progress of loops and tasks when its output is not a terminal.", 0.1),
    Setting("client.server", "", "address", "Server that commands and workers use, e.g. http://127.0.0.1:8420; separate several servers of one store by commas. Empty: runs are stored and run by this process.", known_as="ARCLOG_SERVER"),
    Setting("client.token_file", "", "path", "File with the access token for a server. Default: the value of `ARCLOG_TOKEN`."),
    Setting("client.ca_file", "", "path", "PEM file of certificate authorities that clients trust in addition to the system's when a server uses https."),
    Setting("client.timeout_s", 30.0, "seconds", "How long a server may take to answer one request.", 0.001),
    Setting("client.patience_s", 60.0, "seconds", "How long a client retries when a server that it has reached before becomes unreachable or busy.", 0.0),
    Setting("client.poll_s", 20.0, "seconds", "Longest time that one request waits for an event; to wait longer, clients repeat the request.", 0.0),
    Setting("playbook.max_bytes", 4 * MIB, "bytes", "Largest playbook file.", 1),
    Setting("playbook.max_file_bytes", MIB, "bytes", "Largest file that a task can include (`file`, `module`).", 1),
    Setting("playbook.max_files_bytes", 8 * MIB, "bytes", "Maximum total size of the files that one playbook includes.", 1),
    Setting("playbook.max_nodes", 200_000, "nodes", "Maximum number of YAML nodes in a playbook. An alias counts each time it is used.", 1),
    Setting("playbook.max_depth", 64, "levels", "Deepest nesting in a playbook.", 1),
    Setting("playbook.max_steps", 10_000, "steps", "Maximum number of steps in a playbook.", 1),
    Setting("playbook.max_markings", 20_000, "markings", "Maximum number of markings that `arclog check` explores to prove that counted joins get their tokens. If the limit is reached, it says so in a finding.", 1),
    Setting("playbook.max_join_work", 5_000_000, "operations", "Maximum number of operations spent on computing which steps can reach the joins of a playbook.", 1),
    Setting("compile.timeout_s", 15.0, "seconds", "Maximum processor time for compiling one playbook on a server. Large playbooks are compiled in a separate process, which pauses half of the time once it has used 0.25 s.", 0.1),
    Setting("compile.max_elapsed_s", 30.0, "seconds", "Maximum elapsed time for compiling one playbook on a server, however busy the machine is. Raise it together with `client.timeout_s`.", 0.1),
    Setting("compile.max_memory_bytes", 1024 * MIB, "bytes", "Maximum memory of a process that compiles playbooks.", 16 * MIB),
    Setting("compile.idle_s", 60.0, "seconds", "An idle compiler process is stopped after this time.", 0.0),
    Setting("expr.max_work", 1_000_000, "operations", "Maximum number of operations of one template evaluation.", 1),
    Setting("expr.max_bytes", 16 * MIB, "bytes", "Maximum memory for all values that one template evaluation builds.", 1),
    Setting("lineage.url", "", "url", "Address to which a server posts the OpenLineage events of each finished run, e.g. http://marquez:5000/api/v1/lineage. Empty: events are not posted."),
    Setting("lineage.auth", "", "text", "Authorization header of the requests to `lineage.url`: a token (sent as `Bearer TOKEN`), `SCHEME CREDENTIALS`, or `secret:NAME` for a stored secret (`arclog secret set NAME`) in the scope of the `scope.…` settings. Prefer a file (`ARCLOG_LINEAGE_AUTH_FILE`) or a stored secret to a literal token."),
    Setting("lineage.file", "", "path", "File to which a server appends the OpenLineage events of each finished run, one per line. Empty: none."),
    Setting("lineage.namespace", "arclog", "text", "Namespace of jobs in OpenLineage events."),
    Setting("lineage.timeout_s", 10.0, "seconds", "How long the receiver of OpenLineage events may take to answer.", 0.001),
    Setting("lineage.max_sql_chars", 100_000, "characters", "Longer SQL texts are not analyzed for tables and columns.", 0),
    Setting("lineage.allow_networks", "", "list", "Addresses that `lineage.url` may reach in addition to public ones, as in `http.allow_networks`. Empty: the value of that setting."),
    Setting("history.simulate_max_events", 200_000, "events", "A simulated run with more events is stopped, because it may never end.", 100),
    Setting("history.where_max_work", 10_000, "operations", "Maximum number of operations of a search condition for one event; events that would need more do not match.", 1),
    Setting("history.trace_max_nodes", 1_000, "values", "Maximum number of values that a trace follows; a trace that exceeds it is marked as incomplete.", 1),
    Setting("imports.max_decoded_bytes", 256 * MIB, "bytes", "Maximum memory (estimated) that the log, the plan, or one stored item of an imported run may take.", 1 * MIB),
    Setting("imports.max_bytes", 256 * MIB, "bytes", "Largest run that can be imported, unpacked; also the largest body of an import request.", 1 * KIB),
    Setting("decision.max_work", 2_000_000, "operations", "Maximum number of operations of all templates that the server evaluates in one decision. The default, twice that of `expr.max_work`, leaves room for any single template.", 1),
    Setting("decision.max_bytes", 32 * MIB, "bytes", "Maximum memory for the values that the templates of one decision build.", 1),
    Setting("decision.turn_work", 5_000, "operations", "A decision whose templates need more operations than this runs in a thread, in slices of a millisecond, so that it does not block others.", 1),
    Setting("limits.max_payload_bytes", 256 * KIB, "bytes", "Largest single event. Ceiling of `limits.max_payload_bytes` in a playbook.", LEAST_EVENT_BYTES),
    Setting("limits.max_task_runs", 1_000_000, "task runs", "Maximum number of task runs of one pipeline (jumps included). Ceiling for playbooks.", 1),
    Setting("limits.max_iterations", 10_000_000, "iterations", "Maximum number of items of one loop. Ceiling for playbooks.", 1),
    Setting("limits.max_events", 100_000_000, "events", "Maximum number of events of one execution. Ceiling for playbooks.", 16),
    Setting("limits.max_step_runs", 10_000_000, "step runs", "Maximum number of step runs of one execution. It ends endless cycles of steps. Ceiling for playbooks.", 1),
    Setting("limits.max_loop_results_bytes", 8 * MIB, "bytes", "Maximum total size of the iteration results that one loop keeps for `{{ step.results }}`. Ceiling for playbooks.", 0),
    Setting("limits.max_child_depth", 16, "runs", "Deepest nesting of runs that call runs (`kind: playbook`).", 0),
    Setting("limits.max_ctx_bytes", 256 * KIB, "bytes", "Largest single ctx value.", 1),
    Setting("signals.max_kept", 100, "signals", "Maximum number of custom signals that a run keeps for tasks that wait for them later.", 0),
    Setting("events.inputs_max_bytes", 4 * KIB, "bytes", "Larger rendered inputs of a task are recorded as a preview with size and sha256.", 256),
    Setting("results.inline_max_bytes", 64 * KIB, "bytes", "A larger payload of a task is stored in the result store, and the log keeps a reference. A payload that does not fit into an event (`limits.max_payload_bytes`) is always stored there.", 0),
    Setting("results.extracted_max_bytes", 32 * KIB, "bytes", "Largest single value of a stored result that is kept in the log because routing reads it.", 64),
    Setting("results.preview_bytes", 1 * KIB, "bytes", "Size of the preview of a stored result that is kept in the log.", 0),
    Setting("results.read_max_bytes", 256 * MIB, "bytes", "Largest stored result that a template may read as a whole.", 1),
    Setting("results.cache_bytes", 64 * MIB, "bytes", "Size of a worker's in-memory cache of stored results.", 0),
    Setting("results.max_bytes", 16384 * MIB, "bytes", "Largest single stored result.", 1),
    Setting("outputs.max_files", 100, "files", "Maximum number of files that one task may store with `outputs`; a task with more fails with kind `limit`.", 1),
    Setting("outputs.max_bytes", 16384 * MIB, "bytes", "Maximum total size of the files that one task may store with `outputs`; a task with more fails with kind `limit`.", 1),
    Setting("tests.record_max_bytes", 64 * KIB, "bytes", "Largest stored result or file of a run that `arclog test record` writes into the test.", 0),
    Setting("results.zstd_level", 3, "level", "Compression level of stored results, 1 to 19.", 1),
    Setting("results.keep_s", 30 * 86_400.0, "seconds", "How long `arclog gc` keeps the results of a run that has ended (results with scope `permanent` are kept).", 0.0),
    Setting("results.orphan_grace_s", 86_400.0, "seconds", "`arclog gc` does not remove stored content that is younger than this, because its task may not have reported it yet. Set it longer than the longest task.", 0.0),
    Setting("gc.every_s", 3600.0, "seconds", "How often one of the servers runs garbage collection of results and old runs for all tenants, as `arclog gc` does. Each run scans the whole store; the first one starts after this time. 0: never.", 0.0),
    Setting("secrets.key_source", "file", "word", "Where the key that encrypts stored secrets is kept: in a file, or in the system's keyring (package `keyring`).", choices=("file", "keyring")),
    Setting("secrets.key_file", "", "path", "File with the key that encrypts stored secrets (32 bytes in base64). Empty: `secrets.key` in the home. Servers that share a store need the same key, and so do workers that use the servers' secrets."),
    Setting("secrets.manager", "local", "name", "Secret manager used by `kind: secret_manager`; `local` is the store of `kind: secret`.", choices=("local", "vault", "aws", "google", "azure")),
    Setting("secrets.manager_url", "", "address", "Address of the secret manager: of Vault (default: VAULT_ADDR), of the Azure vault (https://NAME.vault.azure.net), or of a service compatible with AWS or Google."),
    Setting("secrets.manager_path", "{scope}/{name}", "text", "Name of a secret in the secret manager. {scope} is tenant/project/environment, then tenant/project, then tenant; without it, every playbook can read every secret that this process can read. Google and Azure join parts by `--`."),
    Setting("secrets.manager_credentials_file", "", "path", "File with the credentials for the secret manager: a Vault token or {role_id, secret_id}; AWS {access_key_id, secret_access_key}; a Google service account's key; Azure {tenant_id, client_id, client_secret}. Empty: the standard environment variables and the identity of the machine."),
    Setting("secrets.manager_cache_s", 60.0, "seconds", "How long a secret from a secret manager is cached.", 0.0),
    Setting("secrets.manager_timeout_s", 10.0, "seconds", "How long a secret manager may take to answer.", 0.001),
    Setting("secrets.vault_mount", "secret", "name", "Mount path of Vault's key-value engine (version 2)."),
    Setting("secrets.vault_namespace", "", "name", "Vault namespace. Empty: the value of VAULT_NAMESPACE."),
    Setting("secrets.aws_region", "", "name", "AWS region of the secrets. Empty: the value of AWS_REGION."),
    Setting("secrets.google_project", "", "name", "Google Cloud project of the secrets. Empty: the value of GOOGLE_CLOUD_PROJECT, otherwise the project of the service account or the machine."),
    Setting("secrets.allow_env", "", "list", "Environment variables of the worker that keychain entries may name, separated by commas; `*` matches any text: `CRM_*, API_KEY`. Empty: all except arclog's own, which are never allowed: `ARCLOG_…`, and those with which the configured secret manager, result store and PostgreSQL store log in (`VAULT_…`, `AWS_…`, `GOOGLE_…`, `AZURE_…`, `PGPASSWORD` and so on). With several tenants, all of them can read these."),
    Setting("secrets.allow_files", "", "paths", "Files and folders of the worker that keychain entries may name, separated by commas. Empty: all except arclog's own (also `arclog.toml`, and files that its own variables name, such as GOOGLE_APPLICATION_CREDENTIALS) and those below /proc, which are never allowed. With several tenants, all of them can read these."),
    Setting("secrets.max_bytes", 64 * KIB, "bytes", "Largest single secret, and largest answer of a token server.", 1),
    Setting("secrets.token_timeout_s", 30.0, "seconds", "How long a token server may take to answer (`kind: oauth2`).", 0.001),
    Setting("secrets.token_margin_s", 60.0, "seconds", "A token is refreshed when its remaining lifetime is shorter than this.", 0.0),
    Setting("secrets.allow_networks", "", "list", "Addresses that token servers (`kind: oauth2`) may have in addition to public ones, as in `http.allow_networks`. Empty: the value of that setting."),
    Setting("tasks.timeout_s", 3600.0, "seconds", "Default time limit of a task attempt.", 0.001),
    Setting("tasks.sleep_under_lease_s", 60.0, "seconds", "A retry with a longer delay becomes a durable timer and does not occupy a worker slot.", 0.0),
    Setting("tasks.kill_grace_s", 2.0, "seconds", "Time between asking a process to stop and killing it.", 0.0),
    Setting("tasks.confinement", "standard", "word", "Confinement of the processes of python, shell and duckdb tasks: `standard` confines them as far as the kernel allows; `strict` allows no network and only their own folders, and refuses to run tasks where the kernel cannot enforce this; `off` disables it. See docs/security.md.", choices=("strict", "standard", "off")),
    Setting("tasks.allow_read", "", "paths", "Folders and files that confined tasks may read in addition to the system's programs and their own folder, separated by commas; `/` is everything except arclog's own files. `none` allows nothing else. Empty: `/` for `arclog run`, `none` for the workers of servers."),
    Setting("tasks.allow_write", "", "paths", "Folders and files that confined tasks may write in addition to their own folder and the working directory, separated by commas. `none` allows nothing else. Empty: the system's temporary folder for `arclog run`, `none` for the workers of servers."),
    Setting("tasks.allow_networks", "", "list", "Network access of confined python, shell and duckdb tasks: `all`, `none`, or a list, separated by commas, of networks, addresses and the words `public` (the public internet), `private` and `loopback` (of the worker's machine); tasks reach listed addresses by TCP only, and the worker's machine resolves names for them. Empty: `all` for `arclog run` and for `arclog up` on a loopback address, `none` for the workers of other servers; `strict` is always `none`."),
    Setting("tasks.kinds", "", "rules", "Kinds of tasks that are disabled or restricted, separated by semicolons: `shell: none; python: acme, ops; duckdb: role:admin` disables shell, allows python for two tenants, and accepts playbooks with duckdb from admins only. Empty: no restrictions. Servers refuse playbooks and workers refuse tasks accordingly."),
    Setting("tasks.share_unconfined", False, "boolean", "Allow one worker to run tasks of several tenants although `tasks.confinement` is off or this machine cannot enforce `standard` (see `arclog doctor`). Otherwise such a worker refuses to start, or refuses the tasks of a second tenant."),
    Setting("tasks.max_threads", 1024, "threads", "Maximum number of processes and threads of one confined task; the kernel refuses more.", 64),
    Setting("tasks.max_memory_bytes", 8192 * MIB, "bytes", "Maximum memory for all processes of one python or shell task together, and of the duckdb tasks and the sqlite tasks of one scope, measured several times a second. 0: no limit.", 0),
    Setting("leases.seconds", 30.0, "seconds", "How long a claimed command belongs to its worker without a heartbeat.", 1.0),
    Setting("leases.max_losses", 5, "losses", "A command fails when its lease has been lost this many times.", 1),
    Setting("leases.proof_s", 1.0, "seconds", "A worker starts a task only if the server confirmed its lease within this time, by the worker's clock; otherwise it asks the server first.", 0.0),
    Setting("worker.slots", 8, "commands", "Number of commands that one worker runs at a time.", 1),
    Setting("worker.workdir", "", "path", "Working directory of python and shell tasks. `fresh`: an empty folder for each task, removed when the task ends. Empty: the folder where `arclog run` was started; `fresh` for the workers of servers."),
    Setting("workers.seen_every_s", 10.0, "seconds", "Minimum interval between two records of a worker's presence. A worker that was not seen for three times as long is reported as silent.", 0.1),
    Setting("workers.keep_s", 86_400.0, "seconds", "How long a worker that is gone remains in the list of workers.", 1.0),
    Setting("workers.shared", False, "boolean", "Whether workers with a credential of the server's own tenant (scope.tenant) serve the runs of all tenants and see their data. Otherwise a worker serves only its own tenant."),
    Setting("overview.search_runs", 5_000, "runs", "Number of runs that one text search examines; to search older runs, continue with the cursor of the response.", 1),
    Setting("overview.failing_s", 7 * 86_400.0, "seconds", "A playbook counts as failing while its newest run failed and was started within this time.", 1.0),
    Setting("overview.stuck_s", 60.0, "seconds", "A run counts as stuck when no worker has taken a command of it for this long.", 0.0),
    Setting("pools.aging_s", 60.0, "seconds", "A waiting command gains one level of priority each time this period elapses.", 0.001),
    Setting("pools.grants_in_a_row", 32, "commands", "Number of commands of one pool that workers may receive directly with the responses to their reports before the server checks the queue for commands of other servers.", 1),
    Setting("pools.scale_wait_s", 30.0, "seconds", "Time in which a pool's backlog should be processed. The number of workers that an autoscaler is given is computed from it.", 0.1),
    Setting("worker.drain_s", 60.0, "seconds", "Time that running tasks get when a worker is drained; then they are stopped.", 0.0),
    Setting("worker.started_flush_ms", 150, "ms", "Longest time between the start of a task and the report of it to the server.", 0),
    Setting("logs.max_task_bytes", 1 * MIB, "bytes", "Maximum size of the log kept for each task attempt; further text is counted but not kept.", 0),
    Setting("logs.max_execution_bytes", 256 * MIB, "bytes", "Maximum size of the log kept for each execution; further text is dropped and replaced by a notice.", 0),
    Setting("logs.progress_ms", 500, "ms", "Minimum interval between two progress records of a task attempt.", 0),
    Setting("python.max_memory_bytes", 2048 * MIB, "bytes", "Maximum address space of a python task's process.", 64 * MIB),
    Setting("python.max_processes", 256, "processes", "Maximum number of processes of one python task.", 1),
    Setting("python.max_file_bytes", 1024 * MIB, "bytes", "Largest file that a python task may write.", 0),
    Setting("python.max_result_bytes", 64 * MIB, "bytes", "Largest value that a python task may return.", 1),
    Setting("python.warm_processes", 8, "processes", "Maximum number of idle Python processes that a worker keeps ready for python tasks.", 0),
    Setting("http.allow_networks", "", "list", "Addresses that http tasks may reach in addition to public ones: networks (10.1.0.0/16), addresses, host names (*.corp.example), or the words loopback, private, none; separated by commas. Empty: loopback if everything runs in one process, otherwise none."),
    Setting("http.allow_insecure", False, "boolean", "Whether http tasks may use `verify: false`, which accepts any certificate."),
    Setting("http.ca_file", "", "path", "PEM file of certificate authorities that http tasks, webhooks and arclog's own requests trust in addition to the system's."),
    Setting("http.trust_env", False, "boolean", "Whether http and object tasks, token requests and webhooks use the proxies of HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY. A proxy can connect anywhere, so it must protect private networks itself."),
    Setting("http.max_connections", 100, "connections", "Maximum number of connections of a worker's http tasks, for http and https separately.", 1),
    Setting("http.max_keepalive", 50, "connections", "Maximum number of idle connections that are kept open.", 0),
    Setting("http.keepalive_s", 3.0, "seconds", "How long an idle connection is kept open; many servers close theirs after 5 s.", 0.0),
    Setting("http.connect_timeout_s", 10.0, "seconds", "Default time limit for resolving and connecting to a server, including the TLS handshake.", 0.001),
    Setting("http.max_redirects", 10, "redirects", "Maximum number of redirects that one request follows.", 0),
    Setting("http.max_header_bytes", 64 * KIB, "bytes", "Maximum total size of the headers of a response.", 1 * KIB),
    Setting("http.max_body_bytes", 64 * MIB, "bytes", "Largest body of a response, after decompression, unless the task sets `download: true`.", 0),
    Setting("http.max_retry_after_s", 3600.0, "seconds", "Longest delay accepted from a server's Retry-After header.", 0.0),
    Setting("object.file_root", "", "path", "Folder that contains all local files (plain paths, file://) that object and transfer tasks may use, and sqlite and duckdb tasks of servers; all tenants of a worker share it. `none`: no local files. Empty: the working directory for `arclog run` and for `arclog up` on a loopback address; `none` for workers of other servers."),
    Setting("object.max_keys", 1_000_000, "objects", "Maximum number of objects that one list operation may return. Ceiling of `max_keys`.", 1),
    Setting("object.if_absent_max_bytes", 64 * MIB, "bytes", "Largest object that a put with `if_absent` can send to a cloud store, because it is held in memory and sent in one request.", 1),
    Setting("object.ambient_credentials", False, "boolean", "Whether an object task without `auth` and `endpoint` uses the worker's own credentials (environment, instance role) instead of unsigned requests."),
    Setting("object.connect_timeout_s", 10.0, "seconds", "How long to wait for a connection to an object store.", 0.001),
    Setting("object.read_timeout_s", 60.0, "seconds", "How long to wait for data from an object store.", 0.001),
    Setting("object.request_retries", 2, "retries", "Number of retries of a single request to an object store.", 0),
    Setting("object.allow_networks", "", "list", "Addresses that object tasks may reach in addition to public ones, redirects included, as in `http.allow_networks`. Empty: the value of that setting."),
    Setting("postgres.allow_networks", "", "list", "Addresses that postgres tasks and transfers may reach in addition to public ones, as in `http.allow_networks`; `none` for nothing. `all` allows every address and what belongs to the worker's user: sockets of its machine, and the password, client certificate, Kerberos ticket and service that libpq finds by itself (`PGPASSWORD`, `~/.pgpass` and so on). Empty: `all` for `arclog run`, `loopback,private` for the workers of servers."),
    Setting("postgres.max_row_bytes", 16 * MIB, "bytes", "Largest row that postgres tasks and transfers receive, and the most that a server may send to them without a row: an error, notices, notifications. While a task reads a row, the worker may need ten times its size. A row whose JSON and arrays have more values than fit into four times this (64 bytes each) is refused as well.", 64 * KIB),
    Setting("postgres.ca_file", "", "path", "PEM file of the certificate authorities with which postgres tasks and transfers verify servers (`sslmode: verify-full`). Empty: those of libpq's default file, or of the system with `sslrootcert=system`."),
    Setting("nats.allow_networks", "loopback,private", "list", "Addresses that nats tasks may reach in addition to public ones, as in `http.allow_networks`; `none` for nothing."),
    Setting("network.allow_networks", "loopback,private", "list", "Addresses that arclog's own requests to configured services (secret managers, a token issuer's keys, the receiver of traces, the bucket of results) may reach in addition to public ones, as in `http.allow_networks`; `none` for nothing."),
    Setting("nats.ca_file", "", "path", "PEM file of certificate authorities that nats tasks trust in addition to the system's."),
    Setting("nats.connect_timeout_s", 10.0, "seconds", "How long a NATS server may take to accept a connection.", 0.001),
    Setting("nats.request_timeout_s", 10.0, "seconds", "How long a nats task without `wait_s` waits for a reply or an acknowledgement.", 0.001),
    Setting("nats.idle_s", 60.0, "seconds", "An idle NATS connection is closed after this time.", 0.0),
    Setting("nats.max_messages", 10_000, "messages", "Maximum number of messages of one fetch. Ceiling of `batch`.", 1),
    Setting("nats.max_bytes", 64 * MIB, "bytes", "Maximum total size of the messages of one fetch; it ends before the message that would exceed the limit.", 1),
    Setting("nats.max_entries", 1_000_000, "entries", "Maximum number of keys or revisions that kv_keys and kv_history return.", 1),
    Setting("sql.threads", 16, "threads", "Maximum number of SQLite attempts, and of DuckDB attempts, that one worker runs at a time; others wait.", 1),
    Setting("sql.busy_timeout_s", 30.0, "seconds", "How long a task waits for a lock that another connection to its SQLite file holds, and for a DuckDB file that another process has open.", 0.0),
    Setting("sql.max_row_bytes", 16 * MIB, "bytes", "Largest row that a duckdb task may return or a transfer may read from DuckDB, and the same for SQLite on the workers of servers.", 64 * KIB),
    Setting("sql.pool_max", 10, "connections", "Maximum number of connections of one worker to one PostgreSQL database as one user; further tasks wait.", 1),
    Setting("sql.pool_idle_s", 60.0, "seconds", "An idle PostgreSQL connection is closed after this time.", 0.0),
    Setting("sql.connect_timeout_s", 10.0, "seconds", "How long to wait for a PostgreSQL server to accept a connection.", 1.0),
    Setting("duckdb.max_memory_bytes", 1024 * MIB, "bytes", "Memory that one DuckDB database may use before it spills to disk or fails.", 64 * MIB),
    Setting("duckdb.max_temp_bytes", 10240 * MIB, "bytes", "Disk space that one DuckDB database may use for temporary data.", 0),
    Setting("duckdb.extensions", "", "path", "Folder of DuckDB extensions that tasks may LOAD, in DuckDB's layout: `v<version>/<platform>/<name>.duckdb_extension`. Empty: DuckDB's own, `~/.duckdb/extensions`. Nothing is ever downloaded into it."),
    Setting("transfer.chunk_rows", 5_000, "rows", "Number of rows that a transfer task reads at a time if it does not set `chunk_rows`.", 1),
    Setting("python.environments", "", "path", "Folder for the packages that python tasks install with `requirements`, one environment for each set. Empty: `environments` in the home."),
    Setting("python.environments_keep_s", 30 * 86_400.0, "seconds", "`arclog gc` removes an environment that no task has used for this long.", 0.0),
    Setting("python.offline", False, "boolean", "Install packages of `requirements` only from this machine (the installer's cache, `python.find_links`)."),
    Setting("python.find_links", "", "list", "Folders or addresses with packages for `requirements`, separated by commas."),
    Setting("python.only_wheels", False, "boolean", "Refuse packages of `requirements` that have to be built from source. Otherwise they are built confined, as tasks are."),
    Setting("python.build_networks", "", "list", "Network access of installations of `requirements` that can run code of packages (with uv those where a package has to be built from source, with pip all): as `tasks.allow_networks`. The index and proxies of the installer must be in the list. Empty: `all` for `arclog run` and for `arclog up` on a loopback address, `public` for the workers of other servers, `none` with `tasks.confinement: strict`."),
    Setting("shell.max_output_bytes", 16 * MIB, "bytes", "Maximum size of a shell task's output that is kept in its result, for each of stdout and stderr.", 0),
    Setting("store.url", "", "address", "Where the log is kept: postgresql://user:password@host/database. Empty: a SQLite file in the home."),
    Setting("results.url", "", "address", "Where results that are too large for the log are kept: postgres (beside the log; or postgresql://… for a separate database), nats (the object store of `bus.url`), or s3://bucket/prefix, gs://…, az://…. Empty: files in the home."),
    Setting("results.timeout_s", 30.0, "seconds", "How long a result store on another machine may take for one request.", 0.1),
    Setting("results.patience_s", 15.0, "seconds", "How long requests to an unreachable result store are retried before the task fails (it may then be retried).", 0.0),
    Setting("results.connections", 4, "connections", "Maximum number of connections of one process to a result store in PostgreSQL; further requests wait.", 1),
    Setting("results.bucket", "arclog-results", "name", "Bucket of the NATS object store that keeps results; created if it does not exist, otherwise left unchanged."),
    Setting("results.bucket_max_bytes", 0, "bytes", "Maximum size of the bucket, if arclog creates it; further results are refused. 0: limited by NATS only.", 0),
    Setting("results.credentials_file", "", "path", "File with the credentials for results in s3://, gs:// or az://, as lines NAME=value with the names of the environment variables (AWS_ACCESS_KEY_ID, GOOGLE_SERVICE_ACCOUNT, AZURE_STORAGE_ACCOUNT_KEY, …). Empty: the environment and the machine's own role."),
    Setting("bus.url", "", "address", "Address of the bus through which servers notify each other of commits: nats://host:4222 (several separated by commas). Empty: PostgreSQL's notifications if the log is in PostgreSQL, otherwise none."),
    Setting("bus.prefix", "arclog", "name", "Prefix of the names that servers use on a bus (subjects, streams, channels), so that several clusters can share it. All servers of a cluster need the same prefix."),
    Setting("bus.ca_file", "", "path", "PEM file of certificate authorities that are trusted in addition to the system's for TLS connections to NATS."),
    Setting("bus.cert_file", "", "path", "PEM file of this server's client certificate for NATS."),
    Setting("bus.key_file", "", "path", "PEM file of the key of that certificate. Empty: the key is in `bus.cert_file`."),
    Setting("bus.creds_file", "", "path", "Credentials file (JWT and seed) for NATS."),
    Setting("bus.nkey_file", "", "path", "File with the NKEY seed for NATS."),
    Setting("bus.connect_timeout_s", 5.0, "seconds", "How long a bus may take to accept a connection or to answer a request.", 0.1),
    Setting("bus.max_retry_s", 5.0, "seconds", "Longest delay between two attempts to reconnect to a bus.", 0.01),
    Setting("bus.gather_ms", 20.0, "ms", "Notifications through PostgreSQL are collected for this long, or up to 100 ms while PostgreSQL is slow, and sent together, since each costs PostgreSQL a transaction.", 0.0),
    Setting("bus.max_pending", 10_000, "runs", "Maximum number of runs with pending notifications to other servers; further notifications are dropped and counted, and the other servers find the runs by polling.", 1),
    Setting("bus.offer_max_age_s", 5.0, "seconds", "How long NATS keeps the notification of an available command for the next waiting worker.", 1.0),
    Setting("bus.offer_max_messages", 10_000, "messages", "Maximum number of notifications of available commands that NATS keeps; the oldest are removed first.", 1),
    Setting("bus.replicas", 1, "servers", "Number of replicas of the streams in a NATS cluster, if arclog creates them.", 1),
    Setting("bus.publish_events", True, "boolean", "Whether events are published to NATS, when `bus.url` names one."),
    Setting("bus.events_subject", "noetl.events", "subject", "Subject prefix of published events: an event's subject is this prefix, a dot and the event type. Each cluster on one NATS account needs its own."),
    Setting("bus.events_stream", "", "name", "Stream for published events; created if it does not exist, otherwise left unchanged. Empty: `<bus.prefix>-events`."),
    Setting("bus.events_max_age_s", 7 * 86_400.0, "seconds", "How long the stream keeps an event, if arclog creates the stream.", 1.0),
    Setting("bus.events_max_bytes", 1024 * MIB, "bytes", "Maximum size of the stream, if arclog creates it; the oldest events are removed first.", 1 * MIB),
    Setting("bus.events_duplicates_s", 120.0, "seconds", "Time window in which the stream detects duplicate events, if arclog creates the stream.", 1.0),
    Setting("bus.publish_rows", 200, "commits", "Number of commits that are read at a time to publish their events. Events of one run are published in order, those of different runs concurrently.", 1),
    Setting("bus.publish_lease_s", 15.0, "seconds", "Lease of the server that publishes events; if it fails, another server takes over after this time.", 1.0),
    Setting("store.busy_timeout_s", 30.0, "seconds", "How long to wait for another process that is writing to the same store.", 0.0),
    Setting("store.readers", 2, "threads", "Number of threads that read runs from a SQLite store. Lists are read by as many further threads, so that reads of a run do not wait for them.", 1),
    Setting("store.schema", "arclog", "name", "Schema of the PostgreSQL database that holds the store's tables; one database may hold several stores."),
    Setting("store.connections", 6, "connections", "Maximum number of connections of one process to PostgreSQL: two for appends (one with `server.processes`), the others for everything else.", 3),
    Setting("store.connect_timeout_s", 10.0, "seconds", "How long PostgreSQL may take to accept a connection (at least 2 seconds, for each address of the host), and how long to answer the first request on it.", 1.0),
    Setting("store.timeout_s", 60.0, "seconds", "How long PostgreSQL may take to answer a request; then the connection is closed. PostgreSQL closes connections of unreachable clients after the same time.", 0.1),
    Setting("store.patience_s", 15.0, "seconds", "How long a request is retried while PostgreSQL is unreachable, counted from the first failure; docs/postgres.md explains the resulting total.", 0.0),
    Setting("store.prepare", "auto", "word", "Whether statements are prepared on PostgreSQL's connections: `auto` does so until a pooler turns out not to support it (pgbouncer below 1.21 does not); `never` does not try.", choices=("auto", "never")),
    Setting("store.unsafe", False, "boolean", "Accept a PostgreSQL server that may lose committed data: `fsync`, `full_page_writes` or `synchronous_commit` off. For tests and experiments."),
    Setting("store.partition_s", 7 * 86_400.0, "seconds", "Time span of one partition of the log in PostgreSQL; old partitions are dropped as a whole.", 3600.0),
    Setting("store.retention_s", 0.0, "seconds", "`arclog gc` removes runs that ended longer ago than this, with their logs; 0 keeps all runs. PostgreSQL removes a whole partition (`store.partition_s`) once all of its runs have expired.", 0.0),
    Setting("store.listen_url", "", "address", "Address of the PostgreSQL server for notifications, if `store.url` is a pooler in transaction mode. Empty: `store.url`."),
    Setting("store.compress_min_bytes", 1 * KIB, "bytes", "Larger log rows are compressed; in PostgreSQL, rows larger than half of this.", 0),
    Setting("store.max_row_events", 256, "events", "Maximum number of events in one log row.", 1),
    Setting("store.max_row_bytes", 256 * KIB, "bytes", "Largest log row; a larger single event gets a separate row.", 1),
    Setting("server.host", "127.0.0.1", "address", "Address that `arclog server` and `arclog up` listen on. An address that other machines can reach requires authentication."),
    Setting("server.port", 8420, "port", "Port that `arclog server` and `arclog up` listen on; 0 selects a free port.", 0),
    Setting("server.processes", 1, "processes", "Number of processes of `arclog server` on one address; more than one requires PostgreSQL.", 1),
    Setting("server.public_url", "", "address", "Public address of the servers for browsers, e.g. https://arclog.example, if it differs from the address they listen on. OIDC sign-in returns there, and with https, cookies are sent over TLS only."),
    Setting("server.drain_s", 10.0, "seconds", "Time that requests in progress get when the server stops.", 0.0),
    Setting("schedules.max_catch_up", 100, "times", "Maximum number of times of one schedule that may be queued: missed ones (catch_up: all), overlapping ones (overlap: queue) and backfills.", 1),
    Setting("schedules.max_per_tenant", 10_000, "schedules", "Maximum number of schedules of one tenant; more are refused. Schedules are counted once for every 100 that a server adds.", 1),
    Setting("schedules.late_s", 60.0, "seconds", "A scheduled time that was not handled for this long counts as missed and is subject to `catch_up`.", 1.0),
    Setting("schedules.lease_s", 30.0, "seconds", "Lease of a server on a schedule that is due.", 1.0),
    Setting("server.max_body_bytes", 8 * MIB, "bytes", "Largest body of a request; a larger one is answered with 413.", 1 * KIB),
    Setting("server.max_body_values", 65_536, "values", "Maximum number of values (of lists and maps) in a JSON body, or in one event of a worker's report; a larger one is answered with 413.", 1_000),
    Setting("server.body_timeout_s", 60.0, "seconds", "Time limit for receiving the body of a request.", 0.1),
    Setting("server.head_timeout_s", 20.0, "seconds", "Time limit for receiving the head of a request (request line and headers); then the connection is closed.", 0.05),
    Setting("server.idle_timeout_s", 75.0, "seconds", "How long a connection without a request stays open. It should be longer than clients and load balancers keep theirs (60 s by default in many), or they send requests on connections that are being closed.", 0.1),
    Setting("server.max_head_bytes", 64 * KIB, "bytes", "Largest head of a request.", 1 * KIB),
    Setting("server.max_concurrent", 1_000, "requests", "Maximum number of concurrent requests, including streams and long polls; further requests are answered with 429 and Retry-After.", 1),
    Setting("server.max_connections", 3_000, "connections", "Maximum number of open connections; further ones are closed immediately. When more than the share `server.fair_from` of them is in use, one address may have at most as many connections as are still free.", 1),
    Setting("server.fair_from", 0.75, "share", "When more than this share of `server.max_concurrent` is in use, one caller or tenant may have at most as many requests as are still free.", 0.0),
    Setting("server.reserved", 100, "requests", "Number of concurrent heartbeats, cancellations, signals and approvals that are accepted in addition to `server.max_concurrent`.", 1),
    Setting("server.max_held_bytes", 512 * MIB, "bytes", "Maximum memory for the bodies of concurrent requests, received and (estimated) decoded. One caller may use half of it, one tenant three quarters.", 16 * MIB),
    Setting("server.max_events_bytes", 32 * MIB, "bytes", "Largest report of a worker; workers split larger ones.", 1 * MIB),
    Setting("server.max_report_bytes", 320 * MIB, "bytes", "Largest batch of log lines that a worker may send, and largest single item of a stored list.", 1 * MIB),
    Setting("server.log_format", "auto", "word", "Format of a server's log on stderr: JSON lines, plain text, or plain text only on a terminal (auto).", choices=("auto", "json", "plain")),
    Setting("server.log_level", "info", "word", "Log level.", choices=("debug", "info", "warning", "error")),
    Setting("telemetry.otlp_endpoint", "", "address", "Where a server sends the traces of ended runs (OTLP over HTTP, e.g. http://127.0.0.1:4318/v1/traces); if set for a worker, its http tasks send a `traceparent` header. Empty: no traces."),
    Setting("telemetry.timeout_s", 10.0, "seconds", "How long the receiver of traces may take to answer.", 0.001),
    Setting("telemetry.max_spans", 10_000, "spans", "Maximum number of spans of one run's trace; the root span records how many were omitted.", 1),
    Setting("telemetry.max_pending", 1_000, "runs", "Maximum number of finished runs whose traces wait to be sent; further ones are dropped with a log message.", 1),
    Setting("webhooks.timeout_s", 10.0, "seconds", "How long the receiver of a webhook may take to answer.", 0.001),
    Setting("webhooks.max_attempts", 12, "attempts", "Number of attempts after which a webhook is abandoned with a log message.", 1),
    Setting("webhooks.first_retry_s", 5.0, "seconds", "Delay before the second attempt of a webhook; each further delay is twice as long.", 0.0),
    Setting("webhooks.max_retry_s", 3600.0, "seconds", "Longest delay between two attempts of a webhook.", 0.0),
    Setting("webhooks.max_concurrent", 16, "webhooks", "Maximum number of webhooks that one server sends at a time.", 1),
    Setting("webhooks.max_per_receiver", 4, "webhooks", "Maximum number of webhooks that one server sends to one receiver (scheme, host and port) at a time, so that a slow receiver does not delay others.", 1),
    Setting("webhooks.allow_networks", "", "list", "Addresses that webhooks may reach in addition to public ones, as in `http.allow_networks`. Empty: the value of that setting, and loopback if only this machine can reach the server."),
    Setting("smtp.host", "", "word", "Mail server for notifications by e-mail. Empty: e-mails are not sent."),
    Setting("smtp.port", 587, "port", "Port of the mail server.", 1),
    Setting("smtp.security", "starttls", "word", "Encryption of the connection to the mail server: STARTTLS, TLS from the start (`tls`), or none.", choices=("starttls", "tls", "none")),
    Setting("smtp.username", "", "word", "User name for the mail server. Empty: no authentication."),
    Setting("smtp.password_file", "", "path", "File with the password for the mail server."),
    Setting("smtp.sender", "", "word", "Sender address of e-mails. Empty: `arclog@` followed by `smtp.host`."),
    Setting("smtp.allow_recipients", "", "addresses", "Addresses (ada@example.org) and domains (example.org), separated by commas, that playbooks may send e-mails to. Empty: all."),
    Setting("smtp.timeout_s", 20.0, "seconds", "How long the mail server may take to answer.", 0.001),
    Setting("server.keep_alive_s", 15.0, "seconds", "Interval of keep-alive comments on an idle stream, which prevent proxies from closing it.", 0.1),
    Setting("server.long_poll_s", 60.0, "seconds", "Longest time that a request may wait for something to happen.", 0.0),
    Setting("server.max_result_bytes", 1024 * MIB, "bytes", "Largest part of a stored result in one response; larger results are read in ranges.", 1),
    Setting("server.ready_s", 3.0, "seconds", "How long the store may take to answer before `/ready` reports failure.", 0.01),
    Setting("server.metrics_role", "public", "role", "Role required to read `/metrics`; `public` requires none. The metrics contain names of pools, but no tenants, runs or paths.", choices=("public", "viewer", "operator", "admin")),
    Setting("server.trusted_proxies", "", "addresses", "Proxies, separated by commas, whose X-Forwarded-For header is trusted when failed logins are counted by address."),
    Setting("auth.mode", "auto", "word", "Whether callers of a server must authenticate. `auto`: as soon as the first key has been created or tokens are configured. `none`: never, on loopback only. `required`: always.", choices=("auto", "none", "required")),
    Setting("auth.cache_s", 10.0, "seconds", "How long a verified key is cached; a revoked key stops working after this time at the latest.", 0.0),
    Setting("auth.max_failures", 20, "failures", "Maximum number of requests without valid credentials per minute from one address; further ones are answered with 429.", 1),
    Setting("auth.max_denials", 60, "denials", "Maximum number of denied requests per minute of one caller or address that the audit log records individually; further ones are only counted.", 1),
    Setting("auth.max_token_bytes", 16 * KIB, "bytes", "Longest credential that is accepted.", 256),
    Setting("auth.audit_max_entries", 1_000_000, "entries", "Maximum number of audit log entries that are kept for each tenant; one caller may have at most half of them. The oldest are removed first.", 100),
    Setting("auth.audit_keep_s", 365 * 86_400.0, "seconds", "How long entries of the audit log are kept.", 0.0),
    Setting("auth.max_sessions", 100, "sessions", "Maximum number of sessions of one key or person; a new session ends the oldest.", 1),
    Setting("auth.session_s", 8 * 3600.0, "seconds", "Lifetime of a console session.", 1.0),
    Setting("auth.oidc_client_id", "", "text", "Client id of the console at the issuer (`auth.jwt_issuer`). If set, people sign in to the console through the issuer (authorization code flow with PKCE)."),
    Setting("auth.oidc_client_secret", "", "text", "Secret of that client, if the issuer requires one. Prefer a file (`ARCLOG_AUTH_OIDC_CLIENT_SECRET_FILE`)."),
    Setting("auth.oidc_scopes", "openid profile", "words", "Scopes requested at sign-in; must include `openid`."),
    Setting("auth.oidc_timeout_s", 10.0, "seconds", "How long the issuer may take to answer at sign-in.", 0.1),
    Setting("auth.jwt_issuer", "", "text", "Issuer (`iss`) of the tokens that a server accepts. Empty: none."),
    Setting("auth.jwt_audience", "", "text", "Audience (`aud`) that these tokens must name."),
    Setting("auth.jwt_keys", "", "address or path", "Address or file of the issuer's public keys (a JWKS)."),
    Setting("auth.jwt_keys_max_bytes", 256 * KIB, "bytes", "Largest JWKS.", 256),
    Setting("auth.jwt_refresh_s", 300.0, "seconds", "How long the issuer's keys are cached. A token with an unknown key causes an earlier refresh.", 0.0),
    Setting("auth.jwt_tenant_claim", "tenant", "name", "Claim of a token that names its tenant; `a.b` looks inside the claim a."),
    Setting("auth.jwt_roles_claim", "roles", "name", "Claim with the roles: a list, or words separated by spaces; `a.b` looks inside the claim a. Unknown roles are ignored."),
    Setting("auth.jwt_leeway_s", 30.0, "seconds", "Allowed difference between the clocks of issuer and server.", 0.0),
    Setting("doctor.check_s", 5.0, "seconds", "How long one check of `arclog doctor` may take.", 0.01),
    Setting("doctor.pages_s", 3.0, "seconds", "Time limit of the search for damaged pages by `arclog doctor`; keep it below doctor.check_s.", 0.0),
    Setting("doctor.waiting_s", 60.0, "seconds", "Work that has been waiting for longer than this (a command without a worker, a timer, a schedule) is reported.", 0.0),
    Setting("doctor.idle_s", 300.0, "seconds", "A run that has had no work, timer or other reason to wait for longer than this is reported.", 0.0),
    Setting("doctor.webhooks_s", 7 * 86_400.0, "seconds", "Abandoned webhooks of runs that started within this time are reported.", 0.0),
    Setting("doctor.max_skew_s", 1.0, "seconds", "Larger differences between the clocks of client, server and store are reported.", 0.0),
    Setting("doctor.min_free_bytes", 1024 * MIB, "bytes", "Less free disk space is reported.", 0),
    Setting("events.search_rows", 5_000, "rows", "Maximum number of log rows, or of index entries of each type, that one page of a search across runs examines (`GET /api/events`).", 1),
    Setting("ingest.max_batch_events", 1_000, "events", "Maximum number of events in one `POST /api/events/batch`.", 1),
    Setting("ingest.max_events", 1_000_000, "events", "Maximum number of events from outside producers that one execution records. They do not count towards the limits of its playbook.", 0),
    Setting("ingest.max_refusals", 10, "events", "Maximum number of refused reports of one claim that are recorded (`command.refused`); further ones are refused without a record.", 0),
    Setting("engine.cache_executions", 10_000, "executions", "Maximum number of active runs whose states are kept in memory.", 1),
    Setting("engine.cache_executions_bytes", 256 * MIB, "bytes", "Maximum memory (estimated) for the states of active runs. Large ones are evicted first; the newest is always kept.", 1),
    Setting("engine.cache_programs", 500, "plans", "Maximum number of compiled plans that an engine, and a worker, keep in memory.", 1),
    Setting("engine.cache_programs_bytes", 16 * MIB, "bytes", "Maximum total size of these plans in their stored form, counted separately for plans below 32 KiB and for larger ones. In memory, plans take about eleven times as much. The newest is always kept.", 1),
    Setting("engine.snapshot_events", 10_000, "events", "Number of events after which a snapshot of a run's state is stored, so that long runs resume fast. 0: never.", 0),
    Setting("engine.snapshots_kept", 64, "snapshots", "Number of earlier snapshots of a long run that are kept, spread over its log, so that any past moment can be shown fast. 0: only the newest.", 0),
    Setting("engine.snapshot_max_bytes", 8 * MIB, "bytes", "Larger states are not stored as snapshots; resuming such a run requires reading its whole log.", 0),
    Setting("engine.duty_lease_s", 6.0, "seconds", "Lease of a duty (timers, sweeper, slots, gc): if its server fails, another one takes over after this time.", 0.3),
    Setting("engine.idle_s", 30.0, "seconds", "The sweeper handles requests, calls, ends of runs and signals that have not been processed for this long, because their server may be gone.", 0.0),
    Setting("store.clock_s", 10.0, "seconds", "How often a server compares its clock with that of a shared store.", 0.1),
    Setting("engine.look_again_s", 1.0, "seconds", "How often a request that waits for an event or a run's end polls the store, in case a notification was lost.", 0.01),
    Setting("engine.idle_look_s", 15.0, "seconds", "How often the store is polled for a worker that waits for commands, in case a notification was lost; three times as often while the bus is unavailable.", 0.01),
    Setting("engine.fired_at_once", 64, "timers", "Maximum number of due timers, or of due schedules, that are decided together and share a commit. Other work continues between two such groups.", 1),
    Setting("engine.load_ahead_s", 5.0, "seconds", "A server loads the states of runs whose timers are due within this time into the free part of `engine.cache_executions`. 0: never.", 0.0),
    Setting("engine.max_clock_step_s", 7200.0, "seconds", "If the machine's clock is adjusted by no more than this, leases and timers of a home follow it gradually, at 1 %; a larger adjustment applies immediately.", 0.0),
    Setting("engine.sweep_s", 1.0, "seconds", "How often the sweeper checks for expired leases and due timers.", 0.01),
)
# fmt: on

_BY_NAME = {row.name: row for row in TABLE}


class Settings:
    """An immutable set of values for the whole table."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        merged = {row.name: row.default for row in TABLE}
        for name, raw in (values or {}).items():
            merged[name] = _checked(row_of(name), raw)
        self._values = merged

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def number(self, name: str) -> float:
        return float(self._values[name])

    def integer(self, name: str) -> int:
        return int(self._values[name])

    def text(self, name: str) -> str:
        return str(self._values[name])

    def replaced(self, **by_variable: Any) -> Settings:
        """Return a copy with some values changed; write dots as double underscores."""
        changes = {name.replace("__", "."): value for name, value in by_variable.items()}
        return Settings({**self._values, **changes})


def row_of(name: str) -> Setting:
    """Return the row of a setting."""
    row = _BY_NAME.get(name)
    if row is None:
        from arclog.model.data.suggestions import did_you_mean  # only an error message needs it

        raise SettingsError(f"unknown setting {name!r}{did_you_mean(name, _BY_NAME)}")
    return row


def _checked(row: Setting, raw: Any) -> Any:
    """Return the raw value as the row's type. Raises SettingsError."""
    kind = type(row.default)
    try:
        if kind is bool:
            value: Any = (
                raw
                if isinstance(raw, bool)
                else {"1": True, "true": True, "0": False, "false": False}[str(raw).lower()]
            )
        elif kind in (int, float):
            if isinstance(raw, bool):
                raise TypeError
            value = kind(raw)
        else:
            value = str(raw)
    except (TypeError, ValueError, KeyError):
        raise SettingsError(
            f"{row.variable}: {raw!r} is not {kind.__name__} ({row.help} Default {row.default}.)"
        ) from None
    if row.minimum is not None and not value >= row.minimum:
        raise SettingsError(f"{row.variable}: {value} is below the lowest value allowed, {row.minimum:g} {row.unit}")
    if row.choices and value not in row.choices:
        raise SettingsError(f"{row.variable}: {value!r} is not one of {', '.join(row.choices)}")
    return value
