"""Every setting of arclog, in one table. Environment, `arclog.toml`, flags and docs all read it.

A setting's environment variable is `ARCLOG_` + its name in capitals with dots as underscores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from msgspec import Struct

from arclog.model.errors import SettingsError


class Setting(Struct, frozen=True):
    """One row of the table."""

    name: str
    default: Any
    unit: str
    help: str
    #: lowest value allowed for a number
    minimum: float | None = None
    choices: tuple[str, ...] = ()
    #: its environment variable, when that is not made from the name
    known_as: str = ""

    @property
    def variable(self) -> str:
        return self.known_as or "ARCLOG_" + self.name.replace(".", "_").upper()


KIB = 1024
MIB = 1024 * KIB
#: Lowest `limits.max_payload_bytes`: with less, an event had no room for its envelope, a reference and an error.
LEAST_EVENT_BYTES = 4 * KIB

# fmt: off
TABLE: tuple[Setting, ...] = (
    Setting("home", ".arclog", "path", "Folder that holds `arclog.db` and everything else that an embedded arclog keeps."),
    Setting("scope.tenant", "default", "name", "Tenant of runs started without one."),
    Setting("scope.project", "default", "name", "Project of runs started without one."),
    Setting("scope.environment", "local", "name", "Environment of runs started without one."),
    Setting("run.progress_s", 5.0, "seconds", "How often `arclog run` says how far loops and tasks are when its output is no terminal.", 0.1),
    Setting("client.server", "", "address", "Server that commands and workers speak to, e.g. http://127.0.0.1:8420; several that share a store are parted by commas. Empty: runs are kept and run in this process.", known_as="ARCLOG_SERVER"),
    Setting("client.token_file", "", "path", "File with the token that a server wants; else `ARCLOG_TOKEN` has it."),
    Setting("client.ca_file", "", "path", "PEM file of authorities that clients trust beside the system's when a server speaks https."),
    Setting("client.timeout_s", 30.0, "seconds", "How long a server may take to answer one request.", 0.001),
    Setting("client.patience_s", 60.0, "seconds", "How long a client goes on trying when a server that it spoke to before cannot be reached, or is busy.", 0.0),
    Setting("client.poll_s", 20.0, "seconds", "How long one request waits at most for something to happen; who waits longer asks again.", 0.0),
    Setting("playbook.max_bytes", 4 * MIB, "bytes", "Largest playbook file.", 1),
    Setting("playbook.max_file_bytes", MIB, "bytes", "Largest file beside a playbook that a task takes in (`file`, `module`).", 1),
    Setting("playbook.max_files_bytes", 8 * MIB, "bytes", "Most bytes of all files that one playbook takes in.", 1),
    Setting("playbook.max_nodes", 200_000, "nodes", "Most YAML nodes in a playbook, aliases counted as often as used.", 1),
    Setting("playbook.max_depth", 64, "levels", "Deepest nesting in a playbook.", 1),
    Setting("playbook.max_steps", 10_000, "steps", "Most steps in a playbook.", 1),
    Setting("playbook.max_markings", 20_000, "markings", "Most markings that `check` looks at to prove that counted joins get their tokens; beyond it, it says so.", 1),
    Setting("playbook.max_join_work", 5_000_000, "operations", "Most counted operations to work out which steps can reach the joins of a playbook.", 1),
    Setting("compile.timeout_s", 30.0, "seconds", "How long a server compiles one playbook. Larger ones are compiled in a process of their own.", 0.1),
    Setting("compile.max_memory_bytes", 1024 * MIB, "bytes", "Most memory of a process that compiles playbooks.", 16 * MIB),
    Setting("compile.idle_s", 60.0, "seconds", "A process that compiled nothing for so long is ended.", 0.0),
    Setting("expr.max_work", 1_000_000, "operations", "Most counted operations of one template evaluation.", 1),
    Setting("expr.max_bytes", 16 * MIB, "bytes", "Most memory that all values together take which one template evaluation builds.", 1),
    Setting("lineage.url", "", "url", "Where a server posts the OpenLineage events of each run that has ended, such as http://marquez:5000/api/v1/lineage. Empty: nowhere."),
    Setting("lineage.auth", "", "text", "Authorization header of these requests: a token (sent as `Bearer TOKEN`), `SCHEME CREDENTIALS`, or `secret:NAME` for a secret that is kept here (`arclog secret set NAME`) in the scope of these settings. Best given as a file (`ARCLOG_LINEAGE_AUTH_FILE`) or by name."),
    Setting("lineage.file", "", "path", "File to which a server appends the OpenLineage events of each run that has ended, one a line. Empty: none."),
    Setting("lineage.namespace", "arclog", "text", "Namespace of jobs in OpenLineage events."),
    Setting("lineage.timeout_s", 10.0, "seconds", "How long the receiver of OpenLineage events may take to answer.", 0.001),
    Setting("lineage.max_sql_chars", 100_000, "characters", "A longer SQL text is not read for its tables and columns.", 0),
    Setting("lineage.allow_networks", "", "list", "What `lineage.url` may reach beside public addresses, as in `http.allow_networks`. Empty: what that says."),
    Setting("history.simulate_max_events", 200_000, "events", "A simulated run that has more events is stopped: it may have no end.", 100),
    Setting("history.where_max_work", 10_000, "operations", "Most counted operations of a search's condition for one event; the condition does not hold where it would need more.", 1),
    Setting("history.trace_max_nodes", 1_000, "values", "Most values that a trace follows; what is beyond is left out, and said.", 1),
    Setting("imports.max_decoded_bytes", 256 * MIB, "bytes", "Most memory (estimated) that the log, the plan, or one stored item of an imported run may take.", 1 * MIB),
    Setting("imports.max_bytes", 256 * MIB, "bytes", "Largest run that is imported, once unpacked, and largest body of such a request.", 1 * KIB),
    Setting("decision.max_work", 2_000_000, "operations", "Most counted operations of all templates that the server evaluates in one decision. Twice `expr.max_work` leaves room for any single one.", 1),
    Setting("decision.max_bytes", 32 * MIB, "bytes", "Most memory that the values take which the templates of one decision build.", 1),
    Setting("decision.turn_work", 5_000, "operations", "A decision whose templates do more is made in a thread, in slices of a millisecond between which others have their turn.", 1),
    Setting("limits.max_payload_bytes", 256 * KIB, "bytes", "Largest single event. Ceiling of `limits.max_payload_bytes` in a playbook.", LEAST_EVENT_BYTES),
    Setting("limits.max_task_runs", 1_000_000, "task runs", "Most task runs of one pipeline (jumps included). Ceiling for playbooks.", 1),
    Setting("limits.max_iterations", 10_000_000, "iterations", "Most items of one loop. Ceiling for playbooks.", 1),
    Setting("limits.max_events", 100_000_000, "events", "Most events of one execution. Ceiling for playbooks.", 16),
    Setting("limits.max_step_runs", 10_000_000, "step runs", "Most step runs of one execution: a cycle of steps ends here at the latest.", 1),
    Setting("limits.max_loop_results_bytes", 8 * MIB, "bytes", "Most bytes of iteration results that one loop keeps for `{{ step.results }}`. Ceiling for playbooks.", 0),
    Setting("limits.max_child_depth", 16, "runs", "Deepest nesting of runs that call runs (`kind: playbook`).", 0),
    Setting("limits.max_ctx_bytes", 256 * KIB, "bytes", "Largest single ctx value.", 1),
    Setting("signals.max_kept", 100, "signals", "Most signals of a playbook's own that a run keeps for a task that waits for them later.", 0),
    Setting("events.inputs_max_bytes", 4 * KIB, "bytes", "Rendered task inputs above this are recorded as a preview with size and sha256.", 256),
    Setting("results.inline_max_bytes", 64 * KIB, "bytes", "A task's payload above this goes to the result store, and the log keeps a reference. Ceiling is the event itself.", 0),
    Setting("results.extracted_max_bytes", 32 * KIB, "bytes", "Largest single value of a stored result that is kept in the log because routing reads it.", 64),
    Setting("results.preview_bytes", 1 * KIB, "bytes", "Beginning of a stored result that is kept in the log.", 0),
    Setting("results.read_max_bytes", 256 * MIB, "bytes", "Largest stored result that a template may read as a whole.", 1),
    Setting("results.cache_bytes", 64 * MIB, "bytes", "Stored results that a worker keeps in memory to read them again.", 0),
    Setting("results.max_bytes", 16384 * MIB, "bytes", "Largest single stored result.", 1),
    Setting("outputs.max_files", 100, "files", "Most files that one task may store with `outputs`; one that names more fails with kind `limit`.", 1),
    Setting("outputs.max_bytes", 16384 * MIB, "bytes", "Most bytes that the files of one task may have together (`outputs`); a task with more fails with kind `limit`.", 1),
    Setting("tests.record_max_bytes", 64 * KIB, "bytes", "Largest stored result or file of a run that `arclog test record` writes into the test.", 0),
    Setting("results.zstd_level", 3, "level", "How hard stored results are compressed, 1 to 19.", 1),
    Setting("results.keep_s", 30 * 86_400.0, "seconds", "How long `arclog gc` keeps the results of a run that has ended (`permanent` ones stay).", 0.0),
    Setting("results.orphan_grace_s", 86_400.0, "seconds", "`arclog gc` leaves stored content alone that is younger than this: the task that stored it may not have reported it yet. Longer than the longest task.", 0.0),
    Setting("gc.every_s", 3600.0, "seconds", "How often one of the servers does what `arclog gc` does to results and old runs, for all tenants; each time looks at everything that is stored. A store that never was collected waits so long for the first time. 0: never by itself.", 0.0),
    Setting("secrets.key_source", "file", "word", "Where the key is that seals kept secrets: in a file, or in the system's keyring (package `keyring`).", choices=("file", "keyring")),
    Setting("secrets.key_file", "", "path", "The file with that key (32 bytes in base64); `secrets.key` in the home when empty. Servers that share a store are given the same, and so are workers that open what servers keep."),
    Setting("secrets.manager", "local", "name", "Which secret manager `kind: secret_manager` asks; `local` is where `kind: secret` looks.", choices=("local", "vault", "aws", "google", "azure")),
    Setting("secrets.manager_url", "", "address", "The secret manager's address: of Vault (else VAULT_ADDR), of the Azure vault (https://NAME.vault.azure.net), or of a service that stands in for AWS or Google."),
    Setting("secrets.manager_path", "{scope}/{name}", "text", "What a secret is called there. {scope} is tenant/project/environment, then tenant/project, then tenant; without it, every playbook reads every secret that this process may. Google and Azure join parts by `--`."),
    Setting("secrets.manager_credentials_file", "", "path", "File with what the secret manager is asked with: a Vault token or {role_id, secret_id}; AWS {access_key_id, secret_access_key}; a Google service account's key; Azure {tenant_id, client_id, client_secret}. Empty: the usual variables and the machine's own identity."),
    Setting("secrets.manager_cache_s", 60.0, "seconds", "How long a secret of a secret manager is used without asking again.", 0.0),
    Setting("secrets.manager_timeout_s", 10.0, "seconds", "How long a secret manager may take to answer.", 0.001),
    Setting("secrets.vault_mount", "secret", "name", "Where Vault's key-value engine (version 2) is mounted."),
    Setting("secrets.vault_namespace", "", "name", "Vault's namespace; else VAULT_NAMESPACE."),
    Setting("secrets.aws_region", "", "name", "AWS region of the secrets; else AWS_REGION."),
    Setting("secrets.google_project", "", "name", "Google project of the secrets; else GOOGLE_CLOUD_PROJECT, else that of the service account or the machine."),
    Setting("secrets.allow_env", "", "list", "Environment variables of the worker that keychain entries may name, parted by commas; `*` stands for any text: `CRM_*, API_KEY`. Empty: all but arclog's own (`ARCLOG_…`), which never. With several tenants, all of them read these."),
    Setting("secrets.allow_files", "", "paths", "Files and folders of the worker that keychain entries may name, parted by commas. Empty: all but arclog's own and those below /proc, which never. With several tenants, all of them read these."),
    Setting("secrets.max_bytes", 64 * KIB, "bytes", "Largest single secret, and largest answer of a token server.", 1),
    Setting("secrets.token_timeout_s", 30.0, "seconds", "How long a token server may take to answer (`kind: oauth2`).", 0.001),
    Setting("secrets.token_margin_s", 60.0, "seconds", "A token is fetched anew when it has less than this left.", 0.0),
    Setting("secrets.allow_networks", "", "list", "What token servers (`kind: oauth2`) may be beside public addresses, as in `http.allow_networks`. Empty: what that says."),
    Setting("tasks.timeout_s", 3600.0, "seconds", "Time limit of a task attempt that names none.", 0.001),
    Setting("tasks.sleep_under_lease_s", 60.0, "seconds", "A retry due later than this is a durable timer, and no worker slot is held.", 0.0),
    Setting("tasks.kill_grace_s", 2.0, "seconds", "Time between asking a process to stop and killing it.", 0.0),
    Setting("tasks.confinement", "standard", "word", "How far the processes of python, shell and duckdb tasks are kept from this machine: `standard` as far as the kernel allows, `strict` without network and with their own folders only (and not at all where the kernel cannot), `off` not. docs/security.md has the table.", choices=("strict", "standard", "off")),
    Setting("tasks.allow_read", "", "paths", "Folders and files that confined tasks may read beside the system's programs and their own folder, parted by commas; `/` is everything but arclog's own. Empty: `/` for `arclog run`. `none`: no more, as for the workers of servers."),
    Setting("tasks.allow_write", "", "paths", "Folders and files that confined tasks may write beside their own folder and the working directory, parted by commas. Empty: the system's temporary folder for `arclog run`. `none`: no more, as for the workers of servers."),
    Setting("tasks.allow_networks", "", "list", "What confined python, shell and duckdb tasks reach of the network: `all`, `none`, or a list, parted by commas, of networks, addresses and the words `public` (the public internet), `private` and `loopback` (of the worker's machine); what a list names is reached by TCP, and names are resolved by the worker's machine. Empty: `all` for `arclog run` and for `arclog up` on a loopback address, `none` for the workers of other servers; `strict` is always `none`."),
    Setting("tasks.kinds", "", "rules", "Kinds of tasks that are switched off or limited, parted by semicolons: `shell: none; python: acme, ops; duckdb: role:admin` switches shell off, leaves python to two tenants, and takes playbooks with duckdb from admins only. Empty: every kind for everybody. Servers refuse playbooks by it, workers tasks."),
    Setting("tasks.share_unconfined", False, "boolean", "Let tasks of several tenants run in one worker although `tasks.confinement` is off, or this machine cannot do what `standard` promises (`arclog doctor` says). Otherwise such a worker refuses to start, or the tasks of a second tenant."),
    Setting("tasks.max_threads", 1024, "threads", "Processes and threads that one confined task may have at a time, of all its processes; the kernel refuses more.", 64),
    Setting("tasks.max_memory_bytes", 8192 * MIB, "bytes", "Memory that all processes of one python, shell or duckdb task may use together; it is measured several times a second. 0: no bound.", 0),
    Setting("leases.seconds", 30.0, "seconds", "How long a claimed command stays with its worker without a heartbeat.", 1.0),
    Setting("leases.max_losses", 5, "losses", "A command whose lease was lost this often is poison and fails.", 1),
    Setting("leases.proof_s", 1.0, "seconds", "A task starts only if its worker was given its command, or had it confirmed, no longer ago than this by the worker's own clock; else the worker asks first.", 0.0),
    Setting("worker.slots", 8, "commands", "Commands that one worker runs at a time.", 1),
    Setting("worker.workdir", "", "path", "Folder that python and shell tasks start in; `fresh`: each task in an empty one of its own, which is removed when it has ended. Empty: where `arclog run` was started; `fresh` for the workers of servers."),
    Setting("workers.seen_every_s", 10.0, "seconds", "How often at most a server notes in the store that a worker is there. One that was not seen for three times as long is silent.", 0.1),
    Setting("workers.keep_s", 86_400.0, "seconds", "How long a worker that was not seen any more is remembered.", 1.0),
    Setting("workers.shared", False, "boolean", "Whether workers with a credential of the server's own tenant (scope.tenant) serve the runs of all tenants, and see their data. Otherwise a worker serves its own tenant alone."),
    Setting("overview.search_runs", 5_000, "runs", "Runs that one search for a text looks at; whoever wants older ones goes on with the cursor of its answer.", 1),
    Setting("overview.failing_s", 7 * 86_400.0, "seconds", "A playbook counts as failing while its newest run failed and was started within this time.", 1.0),
    Setting("overview.stuck_s", 60.0, "seconds", "A run counts as stuck when no worker has taken a command of it for this long.", 0.0),
    Setting("pools.aging_s", 60.0, "seconds", "A command that has waited this long comes before one of a priority that is one higher and was issued now.", 0.001),
    Setting("pools.grants_in_a_row", 32, "commands", "Commands of one pool that workers are given with the answers to their reports, past the queue, before a server looks whether others wait that it does not know of.", 1),
    Setting("pools.scale_wait_s", 30.0, "seconds", "How long a pool's backlog may take: an autoscaler is told how many workers that needs.", 0.1),
    Setting("worker.drain_s", 60.0, "seconds", "Time that tasks under way get when a worker on its own is told to stop; then they are stopped, too.", 0.0),
    Setting("worker.started_flush_ms", 150, "ms", "A start not yet reported is made durable after this time (the promise is 200).", 0),
    Setting("logs.max_task_bytes", 1 * MIB, "bytes", "Log text kept per task attempt; what comes after is counted, not kept.", 0),
    Setting("logs.max_execution_bytes", 256 * MIB, "bytes", "Log text kept per execution; what comes after is not kept, and a line says so.", 0),
    Setting("logs.progress_ms", 500, "ms", "How often at most the progress of one task attempt is written.", 0),
    Setting("python.max_memory_bytes", 2048 * MIB, "bytes", "Address space of a python task's process.", 64 * MIB),
    Setting("python.max_processes", 256, "processes", "Processes that one python task may have at a time.", 1),
    Setting("python.max_file_bytes", 1024 * MIB, "bytes", "Largest file that a python task may write.", 0),
    Setting("python.max_result_bytes", 64 * MIB, "bytes", "Largest value that a python task may return.", 1),
    Setting("python.warm_processes", 8, "processes", "Idle python processes kept warm per worker.", 0),
    Setting("http.allow_networks", "", "list", "What http tasks may reach beside public addresses: networks (10.1.0.0/16), addresses, host names (*.corp.example), or the words loopback, private, none; separated by commas. Empty: loopback where everything runs in one process, else none."),
    Setting("http.allow_insecure", False, "boolean", "Whether http tasks may say `verify: false`, which trusts any certificate."),
    Setting("http.ca_file", "", "path", "PEM file of authorities that http tasks, webhooks and the requests of a process itself trust beside the system's."),
    Setting("http.trust_env", False, "boolean", "Whether http and object tasks, token requests and webhooks use the proxies of HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY. A proxy connects where it likes: it must guard private networks itself."),
    Setting("http.max_connections", 100, "connections", "Most connections that a worker's http tasks have open at a time, for http and https each.", 1),
    Setting("http.max_keepalive", 50, "connections", "Most of them kept open while nothing uses them.", 0),
    Setting("http.keepalive_s", 3.0, "seconds", "How long an unused connection is kept open; many servers close theirs after 5.", 0.0),
    Setting("http.connect_timeout_s", 10.0, "seconds", "Time to find, reach and greet a server, when a task names none.", 0.001),
    Setting("http.max_redirects", 10, "redirects", "Most redirects that one request follows.", 0),
    Setting("http.max_header_bytes", 64 * KIB, "bytes", "Most bytes of an answer's headers.", 1 * KIB),
    Setting("http.max_body_bytes", 64 * MIB, "bytes", "Largest body, once unpacked, of an answer without `download: true`.", 0),
    Setting("http.max_retry_after_s", 3600.0, "seconds", "Longest wait that a server's Retry-After may ask for.", 0.0),
    Setting("object.file_root", ".", "path", "Folder that objects without a cloud (plain paths, file://) must lie in."),
    Setting("object.max_keys", 1_000_000, "objects", "Most objects that one list may give. Ceiling of `max_keys`.", 1),
    Setting("object.if_absent_max_bytes", 64 * MIB, "bytes", "Largest object that a put with `if_absent` sends to a cloud: it goes in one piece, held in memory.", 1),
    Setting("object.ambient_credentials", False, "boolean", "A cloud task without `auth` uses the worker's own credentials (environment, instance role) instead of unsigned requests."),
    Setting("object.connect_timeout_s", 10.0, "seconds", "How long to wait for a connection to an object store.", 0.001),
    Setting("object.read_timeout_s", 60.0, "seconds", "How long an object store may send nothing.", 0.001),
    Setting("object.request_retries", 2, "retries", "How often a single request to an object store is tried again before the task fails.", 0),
    Setting("object.allow_networks", "", "list", "What object tasks may reach beside public addresses, redirects included, as in `http.allow_networks`. Empty: what that says."),
    Setting("nats.allow_networks", "loopback,private", "list", "What nats tasks may reach beside public addresses, as in `http.allow_networks`; `none` for nothing."),
    Setting("network.allow_networks", "loopback,private", "list", "What the addresses in these settings (secret managers, a token issuer's keys, the receiver of traces, the bucket of results) may be beside public ones, as in `http.allow_networks`; `none` for nothing."),
    Setting("nats.ca_file", "", "path", "PEM file of authorities that nats tasks trust beside the system's."),
    Setting("nats.connect_timeout_s", 10.0, "seconds", "How long a NATS server may take to accept a connection.", 0.001),
    Setting("nats.request_timeout_s", 10.0, "seconds", "How long a nats task waits for an answer or an acknowledgement, when it does not say `wait_s`.", 0.001),
    Setting("nats.idle_s", 60.0, "seconds", "A NATS connection that no task used for so long is closed.", 0.0),
    Setting("nats.max_messages", 10_000, "messages", "Most messages that one fetch takes. Ceiling of `batch`.", 1),
    Setting("nats.max_bytes", 64 * MIB, "bytes", "Most bytes of messages that one fetch takes; it ends before the message that would be too much.", 1),
    Setting("nats.max_entries", 1_000_000, "entries", "Most keys or revisions that kv_keys and kv_history give.", 1),
    Setting("sql.threads", 16, "threads", "Attempts of SQLite, and of DuckDB, that one worker runs at a time; more wait.", 1),
    Setting("sql.busy_timeout_s", 30.0, "seconds", "How long a task waits for a lock that another connection to its SQLite file holds, and for a DuckDB file that another process has open.", 0.0),
    Setting("sql.pool_max", 10, "connections", "Most connections of one worker to one PostgreSQL database as one user; more tasks wait.", 1),
    Setting("sql.pool_idle_s", 60.0, "seconds", "A PostgreSQL connection that nobody used for so long is closed.", 0.0),
    Setting("sql.connect_timeout_s", 10.0, "seconds", "How long to wait for a PostgreSQL server to accept a connection.", 1.0),
    Setting("duckdb.max_memory_bytes", 1024 * MIB, "bytes", "Memory that one DuckDB database may use before it spills to disk or fails.", 64 * MIB),
    Setting("duckdb.max_temp_bytes", 10240 * MIB, "bytes", "Disk space that one DuckDB database may use to spill.", 0),
    Setting("duckdb.extensions", "", "path", "Folder of DuckDB extensions that tasks may LOAD, as DuckDB lays it out: `v<version>/<platform>/<name>.duckdb_extension`. Empty: DuckDB's own, `~/.duckdb/extensions`. Nothing is ever downloaded into it."),
    Setting("transfer.chunk_rows", 5_000, "rows", "Rows that a transfer holds at a time, unless its task says `chunk_rows`.", 1),
    Setting("python.environments", "", "path", "Folder that keeps the packages of `requirements`, one environment a set. Empty: `environments` in the home."),
    Setting("python.environments_keep_s", 30 * 86_400.0, "seconds", "`arclog gc` removes an environment that no task has asked for since so long, and nobody uses.", 0.0),
    Setting("python.offline", False, "yes or no", "Take packages of `requirements` from this machine alone (the installer's cache, `python.find_links`)."),
    Setting("python.find_links", "", "places", "Folders or addresses that hold packages for `requirements`, parted by commas."),
    Setting("shell.max_output_bytes", 16 * MIB, "bytes", "Output of a shell task kept as its result, per stream.", 0),
    Setting("store.url", "", "address", "Where the log is kept: postgresql://user:password@host/database. Empty: a SQLite file in the home."),
    Setting("results.url", "", "address", "Where results that are too large for the log are kept: postgres (beside the log; or postgresql://… for a database of its own), nats (the object store of `bus.url`), or s3://bucket/prefix, gs://…, az://…. Empty: files in the home."),
    Setting("results.timeout_s", 30.0, "seconds", "How long a result store on another machine may take for one request.", 0.1),
    Setting("results.patience_s", 15.0, "seconds", "How long a result store that cannot be reached is asked again before a task that needs it fails (and may be retried).", 0.0),
    Setting("results.connections", 4, "connections", "Most connections of one process to results in PostgreSQL; more requests wait.", 1),
    Setting("results.bucket", "arclog-results", "name", "Bucket of the NATS object store that keeps results; made if it is not there, left as it is if it is."),
    Setting("results.bucket_max_bytes", 0, "bytes", "Most bytes that the bucket takes, when arclog makes it; one more result is refused. 0: as many as NATS has room for.", 0),
    Setting("results.credentials_file", "", "path", "File with the credentials for results in s3://, gs:// or az://, as lines NAME=value by the names of the environment (AWS_ACCESS_KEY_ID, GOOGLE_SERVICE_ACCOUNT, AZURE_STORAGE_ACCOUNT_KEY, …). Empty: the environment and the machine's own role."),
    Setting("bus.url", "", "address", "Where servers tell each other what they committed: nats://host:4222 (several parted by commas). Empty: PostgreSQL's own notices where the log is kept there, else nothing."),
    Setting("bus.prefix", "arclog", "name", "First word of the names that servers use on a bus (subjects, streams, channels), so that several clusters can share one. The servers of one cluster all have the same."),
    Setting("bus.ca_file", "", "path", "PEM file of authorities that are trusted beside the system's when NATS speaks TLS."),
    Setting("bus.cert_file", "", "path", "PEM file of the certificate that this server shows to NATS."),
    Setting("bus.key_file", "", "path", "PEM file of that certificate's key; empty: it is in the same file."),
    Setting("bus.creds_file", "", "path", "Credentials file (JWT and seed) for NATS."),
    Setting("bus.nkey_file", "", "path", "File with the NKEY seed for NATS."),
    Setting("bus.connect_timeout_s", 5.0, "seconds", "How long a bus may take to accept a connection, or to answer one question.", 0.1),
    Setting("bus.max_retry_s", 5.0, "seconds", "Longest pause between two attempts to reach a bus that is away.", 0.01),
    Setting("bus.gather_ms", 20.0, "ms", "PostgreSQL's notices: what is to be told within so long of the last notice goes out together, since each one costs PostgreSQL a transaction.", 0.0),
    Setting("bus.max_pending", 10_000, "runs", "Most runs of which other servers are still to be told; more are dropped and counted, and the others find them by looking.", 1),
    Setting("bus.offer_max_age_s", 5.0, "seconds", "How long NATS keeps the word that a command is offered, for the next worker that waits.", 1.0),
    Setting("bus.offer_max_messages", 10_000, "messages", "Most of them that NATS keeps; the oldest go first.", 1),
    Setting("bus.replicas", 1, "servers", "On how many servers of a NATS cluster the streams are kept, when arclog makes them.", 1),
    Setting("bus.publish_events", True, "boolean", "Whether events are published to NATS, when `bus.url` names one."),
    Setting("bus.events_subject", "noetl.events", "subject", "Events are published as this, a dot and their type. Of several clusters on one NATS account, each needs its own."),
    Setting("bus.events_stream", "", "name", "Stream that keeps published events; made if it is not there, left as it is if it is. Empty: `<bus.prefix>-events`."),
    Setting("bus.events_max_age_s", 7 * 86_400.0, "seconds", "How long the stream keeps an event, when arclog makes it.", 1.0),
    Setting("bus.events_max_bytes", 1024 * MIB, "bytes", "Most bytes that the stream keeps, when arclog makes it; the oldest events go first.", 1 * MIB),
    Setting("bus.events_duplicates_s", 120.0, "seconds", "So long the stream knows events that it has, and does not take them twice, when arclog makes it.", 1.0),
    Setting("bus.publish_rows", 200, "commits", "Commits of the log that are read at a time to publish their events; events of one run go one after the other, those of several runs at once.", 1),
    Setting("bus.publish_lease_s", 15.0, "seconds", "How long one server has the publishing to itself; when it is gone, another goes on after so long.", 1.0),
    Setting("store.busy_timeout_s", 30.0, "seconds", "How long to wait for another process that is writing the same store.", 0.0),
    Setting("store.readers", 2, "threads", "How many reads of a SQLite store run at a time, beside as many lists: a read of one run waits for no list.", 1),
    Setting("store.schema", "arclog", "name", "Schema of the PostgreSQL database that holds the store's tables; one database may hold several stores."),
    Setting("store.connections", 6, "connections", "Most connections of one process to PostgreSQL: two for appends, the others for everything else.", 3),
    Setting("store.connect_timeout_s", 10.0, "seconds", "How long PostgreSQL may take to accept a connection (2 seconds at least, for each address of the host), and again to answer the first question on it.", 1.0),
    Setting("store.timeout_s", 60.0, "seconds", "How long PostgreSQL may take to answer a request; then its connection is given up. PostgreSQL is told to give up connections of a machine that vanished after as long.", 0.1),
    Setting("store.patience_s", 15.0, "seconds", "How long a request goes on trying while PostgreSQL cannot be reached, from its first failure on; docs/postgres.md adds up what that comes to.", 0.0),
    Setting("store.prepare", "auto", "word", "Whether statements are prepared on PostgreSQL's connections: `auto` does so until a pooler in front of it mixes them up (pgbouncer below 1.21 does); `never` spares it the attempt.", choices=("auto", "never")),
    Setting("store.unsafe", False, "yes or no", "Take a PostgreSQL that may lose what was answered: `fsync`, `full_page_writes` or `synchronous_commit` off. For tests and experiments."),
    Setting("store.partition_s", 7 * 86_400.0, "seconds", "Span of time of one partition of the log in PostgreSQL; old ones are dropped as a whole.", 3600.0),
    Setting("store.retention_s", 0.0, "seconds", "`arclog gc` forgets runs that ended longer ago than this, with their logs; 0 keeps them for ever. PostgreSQL forgets a whole partition (`store.partition_s`) once all of its runs may go.", 0.0),
    Setting("store.listen_url", "", "address", "Where PostgreSQL's notices are listened to, when `store.url` is that of a pooler that hands out connections by transaction: the server itself. Empty: `store.url`."),
    Setting("store.compress_min_bytes", 1 * KIB, "bytes", "Log rows above this are compressed; in PostgreSQL those above half of it.", 0),
    Setting("store.max_row_events", 256, "events", "Most events in one log row.", 1),
    Setting("store.max_row_bytes", 256 * KIB, "bytes", "Most bytes in one log row; a larger single event has a row of its own.", 1),
    Setting("server.host", "127.0.0.1", "address", "Address that `arclog server` and `arclog up` listen on. One that others can reach needs authentication."),
    Setting("server.port", 8420, "port", "Port that they listen on; 0 takes a free one.", 0),
    Setting("server.processes", 1, "processes", "Processes of `arclog server` behind its one address; more than one need PostgreSQL.", 1),
    Setting("server.public_url", "", "address", "Address at which browsers reach the servers, e.g. https://arclog.example, where it is not the one that they listen on: sign-in by OIDC returns there, and with https cookies are sent over TLS alone."),
    Setting("server.drain_s", 10.0, "seconds", "Time that requests under way get when the server stops.", 0.0),
    Setting("schedules.max_catch_up", 100, "times", "Most times of one schedule that may wait to be run: missed ones (catch_up: all), overlapping ones (overlap: queue) and backfills.", 1),
    Setting("schedules.late_s", 60.0, "seconds", "A time that nobody looked at for so long was missed, and is treated as `catch_up` says.", 1.0),
    Setting("schedules.lease_s", 30.0, "seconds", "How long one server has a schedule that is due to itself.", 1.0),
    Setting("server.max_body_bytes", 8 * MIB, "bytes", "Largest body of a request; a larger one is answered with 413.", 1 * KIB),
    Setting("server.max_body_values", 65_536, "values", "Most values (of lists and maps) in a JSON body, and in one event of a worker's report; more is answered with 413.", 1_000),
    Setting("server.body_timeout_s", 60.0, "seconds", "Time that a request's body has to come.", 0.1),
    Setting("server.head_timeout_s", 20.0, "seconds", "Time that a request's head (its line and headers) has to come; then the connection ends.", 0.05),
    Setting("server.max_head_bytes", 64 * KIB, "bytes", "Largest head of a request.", 1 * KIB),
    Setting("server.max_concurrent", 1_000, "requests", "Most requests under way at a time, streams and long polls included; one more is answered with 429 and Retry-After.", 1),
    Setting("server.max_connections", 3_000, "connections", "Most open connections; a further one is closed at once. Of what is behind server.fair_from of them, an address may have as many as are left for others.", 1),
    Setting("server.fair_from", 0.75, "share", "Of what is behind this share of server.max_concurrent, a caller and a tenant may have as much as is left for others.", 0.0),
    Setting("server.reserved", 100, "requests", "Places beside server.max_concurrent for heartbeats, cancels, signals and approvals.", 1),
    Setting("server.max_held_bytes", 512 * MIB, "bytes", "Most memory that the bodies of requests under way take, as they come and (estimated) decoded. A caller may have half of it, a tenant three quarters.", 16 * MIB),
    Setting("server.max_events_bytes", 32 * MIB, "bytes", "Largest report of a worker; one that has more sends several.", 1 * MIB),
    Setting("server.max_report_bytes", 320 * MIB, "bytes", "Largest batch of a worker's log lines, or single item of a list that it stores.", 1 * MIB),
    Setting("server.log_format", "auto", "word", "A server's own log on stderr: JSON lines, plain ones, or plain ones at a terminal only.", choices=("auto", "json", "plain")),
    Setting("server.log_level", "info", "word", "How much it tells.", choices=("debug", "info", "warning", "error")),
    Setting("telemetry.otlp_endpoint", "", "address", "Where a server sends the traces of ended runs (OTLP over HTTP, e.g. http://127.0.0.1:4318/v1/traces); where a worker has it, its http tasks send a `traceparent` header. Empty: no traces."),
    Setting("telemetry.timeout_s", 10.0, "seconds", "How long the receiver of traces may take.", 0.001),
    Setting("telemetry.max_spans", 10_000, "spans", "Most spans of one run's trace; its own span says how many more there were.", 1),
    Setting("telemetry.max_pending", 1_000, "runs", "Most ended runs whose traces wait to be sent; more are dropped, and the server's log says so.", 1),
    Setting("webhooks.timeout_s", 10.0, "seconds", "How long the receiver of a webhook may take to answer.", 0.001),
    Setting("webhooks.max_attempts", 12, "attempts", "A webhook that was refused so often is given up, and the server's log says so.", 1),
    Setting("webhooks.first_retry_s", 5.0, "seconds", "Pause before a webhook's second attempt; each further one is twice as long.", 0.0),
    Setting("webhooks.max_retry_s", 3600.0, "seconds", "Longest pause between two attempts of a webhook.", 0.0),
    Setting("webhooks.max_concurrent", 16, "webhooks", "Webhooks that one server sends at a time.", 1),
    Setting("webhooks.max_per_receiver", 4, "webhooks", "How many of them one receiver (scheme, host and port) gets at a time; others do not wait for it.", 1),
    Setting("webhooks.allow_networks", "", "list", "What webhooks may reach beside public addresses, as in `http.allow_networks`. Empty: what that says, and loopback where only this machine can reach the server."),
    Setting("smtp.host", "", "word", "Mail server that notifications by e-mail go through. Empty: there is none, and they are not sent."),
    Setting("smtp.port", 587, "port", "Its port.", 1),
    Setting("smtp.security", "starttls", "word", "How the connection is encrypted: from its first byte (tls), by STARTTLS, or not at all.", choices=("starttls", "tls", "none")),
    Setting("smtp.username", "", "word", "Name to sign in with. Empty: without."),
    Setting("smtp.password_file", "", "path", "File with the password to it."),
    Setting("smtp.sender", "", "word", "Address that e-mails come from. Empty: arclog at the mail server."),
    Setting("smtp.timeout_s", 20.0, "seconds", "How long the mail server may take to answer.", 0.001),
    Setting("server.keep_alive_s", 15.0, "seconds", "A stream with nothing to tell sends a comment so often, so that nobody in between takes it for dead.", 0.1),
    Setting("server.long_poll_s", 60.0, "seconds", "Longest time that a request may wait for something to happen.", 0.0),
    Setting("server.max_result_bytes", 1024 * MIB, "bytes", "Most bytes of a stored result in one answer; larger ones are read in ranges.", 1),
    Setting("server.ready_s", 3.0, "seconds", "How long the store may take before `/ready` says no.", 0.01),
    Setting("server.metrics_role", "public", "role", "Who may see `/metrics`. It names pools and nothing of tenants, runs or paths.", choices=("public", "viewer", "operator", "admin")),
    Setting("server.trusted_proxies", "", "addresses", "Proxies, parted by commas, whose X-Forwarded-For is believed when failed logins are counted by address."),
    Setting("auth.mode", "auto", "word", "Whether callers of a server must say who they are. `auto`: as soon as a key was ever made, or tokens are configured. `none`: never, on loopback only. `required`: always.", choices=("auto", "none", "required")),
    Setting("auth.cache_s", 10.0, "seconds", "How long a key that was checked is believed; a revoked one ends this much later at most.", 0.0),
    Setting("auth.max_failures", 20, "failures", "Requests of one address with no credential, or a wrong one, in a minute; more are answered 429.", 1),
    Setting("auth.max_denials", 60, "denials", "Denied requests of one caller (or address) in a minute that the audit keeps one by one; of more it keeps their number.", 1),
    Setting("auth.max_token_bytes", 16 * KIB, "bytes", "Longest credential that is looked at.", 256),
    Setting("auth.audit_keep_s", 365 * 86_400.0, "seconds", "How long the record of what callers were granted and denied is kept.", 0.0),
    Setting("auth.max_sessions", 100, "sessions", "Sessions of one key or person at a time; the oldest ends when one more is opened.", 1),
    Setting("auth.session_s", 8 * 3600.0, "seconds", "How long somebody who signed in to the console stays signed in.", 1.0),
    Setting("auth.oidc_client_id", "", "text", "Client id of the console at the issuer (`auth.jwt_issuer`). With it, people sign in to the console there (authorization code flow with PKCE)."),
    Setting("auth.oidc_client_secret", "", "text", "Secret of that client, where the issuer wants one; best given as a file (`ARCLOG_AUTH_OIDC_CLIENT_SECRET_FILE`)."),
    Setting("auth.oidc_scopes", "openid profile", "words", "Scopes that are asked for at sign-in; `openid` is one of them."),
    Setting("auth.oidc_timeout_s", 10.0, "seconds", "How long the issuer may take to answer at sign-in.", 0.1),
    Setting("auth.jwt_issuer", "", "text", "Issuer (`iss`) of the tokens that a server takes. Empty: it takes none."),
    Setting("auth.jwt_audience", "", "text", "Audience (`aud`) that these tokens must name."),
    Setting("auth.jwt_keys", "", "place", "The issuer's public keys: address or file of its JWKS."),
    Setting("auth.jwt_keys_max_bytes", 256 * KIB, "bytes", "Largest JWKS.", 256),
    Setting("auth.jwt_refresh_s", 300.0, "seconds", "How long these keys are believed before they are fetched again. A token with an unknown key makes a server look sooner.", 0.0),
    Setting("auth.jwt_tenant_claim", "tenant", "name", "Claim of a token that names its tenant; `a.b` looks inside the claim a."),
    Setting("auth.jwt_roles_claim", "roles", "name", "Claim with the roles: a list, or words parted by spaces; `a.b` looks inside the claim a. Names that are no roles are passed over."),
    Setting("auth.jwt_leeway_s", 30.0, "seconds", "How far the clocks of issuer and server may be apart.", 0.0),
    Setting("doctor.check_s", 5.0, "seconds", "How long one check of `arclog doctor` may take.", 0.01),
    Setting("doctor.pages_s", 3.0, "seconds", "How long `arclog doctor` looks for damaged pages in the file of a home; keep it below doctor.check_s.", 0.0),
    Setting("doctor.waiting_s", 60.0, "seconds", "Work that nobody has taken up for so long (a command without a worker, a timer, a schedule) is reported.", 0.0),
    Setting("doctor.idle_s", 300.0, "seconds", "A run that has neither work nor a timer for so long, and waits for nothing, is reported.", 0.0),
    Setting("doctor.webhooks_s", 7 * 86_400.0, "seconds", "Webhooks given up are reported of runs started no longer ago than this.", 0.0),
    Setting("doctor.max_skew_s", 1.0, "seconds", "Clocks of client, server and store that are further apart are reported.", 0.0),
    Setting("doctor.min_free_bytes", 1024 * MIB, "bytes", "A disk with less free space is reported.", 0),
    Setting("events.search_rows", 5_000, "rows", "Rows of the log, or marks of each type, that one page of a search across runs looks at (`GET /api/events`).", 1),
    Setting("ingest.max_batch_events", 1_000, "events", "Most events in one `POST /api/events/batch`.", 1),
    Setting("ingest.max_events", 1_000_000, "events", "Most events from outside that one execution records. They count for no limit of its playbook.", 0),
    Setting("ingest.max_refusals", 10, "events", "How many refused reports of one claim are recorded (`command.refused`). Further ones are refused without a record.", 0),
    Setting("engine.cache_executions", 10_000, "executions", "Live states kept in memory.", 1),
    Setting("engine.cache_executions_bytes", 256 * MIB, "bytes", "Most memory (estimated) of these states together. Large ones are given up first; the newest is kept in any case.", 1),
    Setting("engine.cache_programs", 500, "plans", "Compiled plans that an engine, and a worker, each keep in memory.", 1),
    Setting("engine.cache_programs_bytes", 16 * MIB, "bytes", "Most bytes of these plans as they are stored, for plans below 32 KiB and for larger ones each; in memory they take about eleven times as much. The newest is kept in any case.", 1),
    Setting("engine.snapshot_events", 10_000, "events", "A run's state is kept beside its log after so many events, so that a long log resumes fast. 0: never.", 0),
    Setting("engine.snapshots_kept", 64, "snapshots", "How many earlier states of a long run are kept, spread over its log, so that any moment of it is shown fast. 0: the newest alone.", 0),
    Setting("engine.snapshot_max_bytes", 8 * MIB, "bytes", "A larger state is not kept; to resume it takes as long as to read its log.", 0),
    Setting("engine.duty_lease_s", 6.0, "seconds", "How long one server of several keeps a duty (timers, sweeper, slots, gc) without a sign of life; then another one takes it over.", 0.3),
    Setting("engine.idle_s", 30.0, "seconds", "A run that nothing moves, and a call, an end or a signal whose consequences nobody drew for so long, is looked after by the sweeper: its server may be gone.", 0.0),
    Setting("store.clock_s", 10.0, "seconds", "How often a server compares its clock with the store's, where several machines share one.", 0.1),
    Setting("engine.look_again_s", 1.0, "seconds", "How often whoever waits for an event or a run's end looks into the store by itself, should no word of it come from another server.", 0.01),
    Setting("engine.idle_look_s", 15.0, "seconds", "How often a worker that waits for commands looks into the store by itself, in case a notice was lost; three times as often while the bus is away.", 0.01),
    Setting("engine.fired_at_once", 32, "timers", "Timers, and schedules, that are fired at the same time when many are due: they share commits.", 1),
    Setting("engine.load_ahead_s", 5.0, "seconds", "So long before many timers come due, a server reads the states of their runs into what is free of `engine.cache_executions`; 0: never.", 0.0),
    Setting("engine.max_clock_step_s", 7200.0, "seconds", "When a machine's clock is set by up to this, the leases and timers of a home go on by the time that passes and follow it at 1 %; a larger step is followed at once.", 0.0),
    Setting("engine.sweep_s", 1.0, "seconds", "How often expired leases and due timers are looked for.", 0.01),
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
        """A copy with some values changed; dots are written as double underscores."""
        changes = {name.replace("__", "."): value for name, value in by_variable.items()}
        return Settings({**self._values, **changes})


def row_of(name: str) -> Setting:
    """The table's row of a name."""
    row = _BY_NAME.get(name)
    if row is None:
        near = get_close_matches(name, _BY_NAME, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise SettingsError(f"there is no setting {name!r}{hint}")
    return row


def _checked(row: Setting, raw: Any) -> Any:
    """The raw value as the row's type, or a SettingsError."""
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
        raise SettingsError(f"{row.variable}: {value!r} is none of {', '.join(row.choices)}")
    return value
