// Made by `./x ui types` from the server's OpenAPI document; do not edit.

export interface Activity {
  since: string;
  until: string;
  hours: Hour[];
}

/** A pending approval. */
export interface Approval {
  run: ListedRun;
  key: string;
  step: string;
  task: string;
  iteration: string;
  prompt: string;
  since: string;
  until: string | null;
}

export interface ApprovalPage {
  approvals: Approval[];
  next: string | null;
}

/** A request to archive or restore a path. */
export interface ArchiveBody {
  path: string;
  archived?: boolean;
}

/** A page of the audit log, newest entries first. */
export interface AuditPage {
  entries: AuditedRequest[];
  next: number | null;
}

/** One entry of the audit log. */
export interface AuditedRequest {
  position: number;
  at: string;
  decision: string;
  principal: string;
  tenant: string;
  method: string;
  route: string;
  target: string;
  address: string;
  reason: string;
}

/** A past period, both ends included (RFC 3339). */
export interface Backfill {
  from: string;
  to: string;
}

/** The results of a batch. */
export interface BatchAnswer {
  accepted: number;
  refused: number;
  results: Item[];
}

/** The request of cancelRun. */
export interface CancelRun {
  reason: string;
}

export interface CatalogDiff {
  path: string;
  older: number;
  newer: number;
  diff: string;
  net: Record<string, unknown> | null;
  settings: string[] | null;
}

/** A path of the catalog. */
export interface CatalogEntry {
  path: string;
  version: number;
  digest: string;
  registered_at: string;
  archived_at: string | null;
}

/** A page of registered playbooks, ordered by path. */
export interface CatalogPage {
  playbooks: CatalogEntry[];
  next: string | null;
}

/** One immutable version of a playbook. */
export interface CatalogVersion {
  path: string;
  version: number;
  digest: string;
  registered_at: string;
  created: boolean;
  source: string;
}

/** The root cause of a failed run: the first failure that is not a consequence of another. Step, task and location are those of the run in which it happened, which may be a child. */
export interface Cause {
  kind: string;
  message: string;
  code: string | null;
  step: string;
  step_run: number;
  task: string;
  task_run: number;
  attempt: number;
  iteration: string;
  at: string;
  rule: string;
  seq: number;
  file: string;
  line: number;
  source: string;
  traceback: string;
  execution_id: string;
  via: string[];
}

export interface Check {
  name: string;
  status: string;
  detail: string;
  remedy: string;
}

/** A playbook to check. */
export interface CheckBody {
  playbook: string;
  file?: string;
}

/** A finding, as `arclog check --json` prints it. */
export interface CheckFinding {
  line: number;
  column: number;
  severity: string;
  code: string;
  message: string;
  hint: string;
}

/** The result of a check. */
export interface CheckResult {
  findings: CheckFinding[];
  graph: Record<string, unknown> | null;
}

/** Options of a garbage collection. */
export interface CollectBody {
  dry_run?: boolean;
}

/** The removals of a garbage collection, real or simulated. */
export interface Collected {
  dry_run: boolean;
  results: number;
  contents: number;
  bytes: number;
  leftovers: number;
  executions: number;
  reclaimed: number;
}

export interface CommandView {
  command_id: string;
  step: string;
  run: number;
  fence: number;
  losses: number;
}

export interface CreatedKey {
  key: string;
  about: KeyInfo;
  first: boolean;
}

/** Secrets, without their values. */
export interface CredentialList {
  credentials: SecretInfo[];
}

/** The secret that was removed. */
export interface CredentialRemoved {
  name: string;
  scope: string;
  removed: boolean;
}

/** The health checks of a server. */
export interface Diagnosis {
  version: string;
  protocol: number;
  now: number;
  checks: Check[];
}

/** A worker or a pool to drain: exactly one of the two. */
export interface Drain {
  worker_id?: string;
  pool?: string;
}

/** A page of the events of a run, in seq order. */
export interface EventPage {
  events: (Record<string, unknown>)[];
  next: number;
  more: boolean;
}

/** A page of events across runs, oldest first. */
export interface EventSearchPage {
  events: (Record<string, unknown>)[];
  next: string;
  more: boolean;
}

/** A request for a run: `path` (in the catalog) or `playbook` (YAML or JSON text, or the playbook itself as JSON). */
export interface ExecuteBody {
  path?: string;
  version?: number | string;
  playbook?: string | Record<string, unknown>;
  file?: string;
  files?: Record<string, string>;
  workload?: Record<string, unknown>;
  scope?: Record<string, string>;
  idempotency_key?: string;
  priority?: number | null;
}

/** A page of runs, newest first. */
export interface Executions {
  executions: ListedRun[];
  next: string | null;
}

/** A playbook whose newest run that ended has failed. */
export interface FailingPlaybook {
  path: string;
  name: string;
  failures: number;
  since: string | null;
  last: ListedRun;
}

/** Playbooks whose latest run failed. */
export interface FailingPlaybooks {
  playbooks: FailingPlaybook[];
}

/** A request for a new run that continues from the state after an event. */
export interface ForkBody {
  at: number;
  playbook?: string | Record<string, unknown>;
  file?: string;
  files?: Record<string, string>;
  workload?: Record<string, unknown>;
  map?: Record<string, string>;
  idempotency_key?: string;
}

/** A run that started with the events of another. */
export interface Forked {
  execution_id: string;
  run_id: string;
  origin: Origin;
  created: boolean;
}

/** The last event of a run, and whether the run has ended or is paused. */
export interface Head {
  head: number;
  ended: boolean;
  pausing: boolean;
}

/** The runs that ended within an hour, without children. */
export interface Hour {
  at: string;
  completed: number;
  failed: number;
  cancelled: number;
}

/** A run that was imported from a file. */
export interface Imported {
  execution_id: string;
  run_id: string;
  events: number;
  results: number;
  missing: string[];
  created: boolean;
}

/** The result for one event of a batch. */
export interface Item {
  index: number;
  status: number;
  event: RecordedEvent | null;
  title: string;
  detail: string;
}

/** Counts of the items of a loop step over all its runs. Items that did not run or were cancelled only count in `total`. */
export interface ItemCounts {
  total: number;
  ok: number;
  failed: number;
}

/** A failed item of a loop. */
export interface ItemError {
  item: string;
  task: string;
  kind: string;
  message: string;
}

/** The public metadata of a key, without its secret and hash. */
export interface KeyInfo {
  key_id: string;
  name: string;
  tenant: string;
  roles: string[];
  project: string;
  environment: string;
  created_at: string;
  expires_at: string | null;
  revoked_at: string | null;
}

/** Keys, oldest first. */
export interface KeyList {
  keys: KeyInfo[];
}

/** Work that a worker has claimed and not finished. */
export interface Lease {
  run: ListedRun;
  step: string;
  step_run: number;
  items: [number, number];
  pool: string;
  worker_id: string;
  claims: number;
  until: string;
}

/** Commands that workers have claimed. */
export interface Leases {
  leases: Lease[];
}

export interface LimitView {
  tenant: string;
  concurrency: number;
}

/** OpenLineage events of a run, in order of time. */
export interface Lineage {
  events: (Record<string, unknown>)[];
}

/** The run whose events a retry or a fork began with. */
export interface ListedOrigin {
  execution_id: string;
  seq: number;
  how: string;
}

/** A run in a list. */
export interface ListedRun {
  execution_id: string;
  run_id: string;
  name: string;
  path: string;
  version: string;
  state: string;
  current_step: string | null;
  created_at: string;
  started_at: string | null;
  ended_at: string | null;
  error: string | null;
  parent: string | null;
  paused: boolean;
  warning: string | null;
  approvals: number;
  imported: boolean;
  waiting: Waiting | null;
  origin: ListedOrigin | null;
}

/** A page of the log lines of a run's tasks. */
export interface LogPage {
  lines: (Record<string, unknown>)[];
  next: number;
}

export interface LoopView {
  handed: number;
  total: number;
  ok: number;
  failed: number;
  open: string[];
}

/** The caller and its permissions. */
export interface Me {
  name: string;
  tenant: string;
  project: string;
  environment: string;
  roles: string[];
  authenticated: boolean;
  expires_at: string | null;
  csrf: string;
  denied: Record<string, string>;
  denied_signals: Record<string, string>;
}

/** A secret to store: a text, or a JSON object as text. */
export interface NewCredential {
  value: string;
  tenant?: string;
  project?: string;
  environment?: string;
}

/** A request for a new key. */
export interface NewKey {
  name: string;
  roles: string[];
  project?: string;
  environment?: string;
  expires_in_s?: number | null;
}

export interface NewLimit {
  concurrency: number;
  tenant?: string;
}

/** The limits of a resource: a rate, a concurrency, or both. */
export interface NewResource {
  rate?: string;
  burst?: number;
  concurrency?: number | null;
}

/** A request for a new schedule. */
export interface NewSchedule {
  name: string;
  cron: string;
  path: string;
  tz?: string;
  version?: number;
  workload?: Record<string, unknown>;
  catch_up?: string;
  overlap?: string;
}

/** A request for a session. */
export interface NewSession {
  key: string;
}

/** The next task, for a worker that evaluates neither templates nor policies. */
export interface NextTask {
  task: string;
  kind: string;
  attempt: number;
  in_flight: boolean;
  config: Record<string, unknown> | null;
  problem: string;
  timeout_s: number;
  not_before: string;
}

/** The origin of a retry or a fork. */
export interface Origin {
  execution_id: string;
  seq: number;
  how: string;
  events: number;
  step: string;
}

/** Statistics of the latest runs of a playbook; `history.stats` describes the parts. */
export interface PlaybookStats {
  path: string;
  runs: number;
  states: Record<string, number>;
  success_rate: number | null;
  p50_ms: number | null;
  p95_ms: number | null;
  steps: (Record<string, unknown>)[];
  days: (Record<string, unknown>)[];
}

/** A pool that has open work, a worker or a limit. */
export interface PoolView {
  name: string;
  waiting: number;
  oldest_s: number;
  busy: number;
  workers: number;
  slots: number;
  limits: LimitView[];
}

export interface Pools {
  pools: PoolView[];
}

/** A problem in a run, whatever its final state. */
export interface Problem {
  what: string;
  step: string;
  text: string;
  errors: ItemError[];
}

/** Every error (RFC 9457). */
export interface ProblemDetails {
  type: string;
  title: string;
  status: number;
  detail: string;
}

/** The queued times, oldest first. Times that have already run are not repeated. */
export interface Queued {
  queued: string[];
}

/** An event from outside that is in the log. */
export interface RecordedEvent {
  execution_id: string;
  event_id: string;
  event_type: string;
  seq: number;
  informative: boolean;
  duplicate: boolean;
  warnings: string[];
  closed: boolean;
  next: NextTask | null;
  error: Record<string, unknown> | null;
}

/** A playbook for the catalog. */
export interface RegisterRequest {
  playbook: string;
  file?: string;
  files?: Record<string, string>;
}

/** The result of replaying a log with the current code. */
export interface ReplayCheck {
  execution_id: string;
  ok: boolean;
  events: number;
  decisions: number;
  folded: number;
  difference: ReplayDifference | null;
}

/** The first place in a log where the current code decides differently. */
export interface ReplayDifference {
  seq: number;
  fields: string[];
  recorded: Record<string, unknown> | null;
  decided: Record<string, unknown> | null;
  problem: string;
}

export interface ResourceView {
  name: string;
  rate: string;
  burst: number;
  concurrency: number | null;
  held: number;
  tokens: number | null;
  next_token_s: number;
}

export interface Resources {
  resources: ResourceView[];
}

/** A page of the stored results of a run. */
export interface ResultPage {
  results: StoredResult[];
  next: number;
}

/** A step to retry in the same run, or the part of an ended run to run again in a new one. */
export interface RetryBody {
  reason?: string;
  step?: string;
  signal_id?: string;
  data?: unknown;
  from?: string;
  failed?: boolean;
  playbook?: string | Record<string, unknown>;
  file?: string;
  files?: Record<string, string>;
  workload?: Record<string, unknown>;
  map?: Record<string, string>;
  idempotency_key?: string;
}

/** A signal to a run. */
export interface RunSignal {
  type: string;
  signalId: string;
  reason?: string;
  stepId?: string;
  payload?: unknown;
}

/** getRunStatus. */
export interface RunStatus {
  runId: string;
  executionId: string;
  tenantId: string;
  projectId: string;
  environmentId: string;
  planId: string;
  planVersion: string;
  status: string;
  substatus: string | null;
  startedAt: string | null;
  endedAt: string | null;
  error: string | null;
}

/** A comparison of two runs; `history.diff` describes the parts. */
export interface RunsDiff {
  a: string;
  b: string;
  divergence: Record<string, unknown> | null;
  steps: (Record<string, unknown>)[];
  values: (Record<string, unknown>)[];
  more_values: boolean;
  durations: (Record<string, unknown>)[];
  net: Record<string, unknown> | null;
}

/** The figures of a pool for an autoscaler. */
export interface Scale {
  pool: string;
  backlog: number;
  oldest_s: number;
  busy: number;
  workers: number;
  slots: number;
  slots_per_worker: number;
  service_s: number;
  wanted_workers: number;
}

/** A schedule in answers; ids are decimal strings, times RFC 3339. */
export interface ScheduleView {
  name: string;
  cron: string;
  tz: string;
  path: string;
  version: number;
  workload: Record<string, unknown>;
  catch_up: string;
  overlap: string;
  paused: boolean;
  created_at: string;
  next_due: string | null;
  queued: string[];
  last_due: string | null;
  last_execution: string | null;
  skipped: number;
  note: string;
}

/** A page of schedules. */
export interface Schedules {
  schedules: ScheduleView[];
  next: string | null;
}

/** Public metadata of a secret. */
export interface SecretInfo {
  name: string;
  scope: string;
  fields: string[];
  set_at: string;
}

export interface SettingInfo {
  name: string;
  value: unknown;
  default: unknown;
  unit: string;
  help: string;
  variable: string;
}

export interface SettingList {
  settings: SettingInfo[];
}

/** The ways to sign in, and the signed-in caller. */
export interface SignIn {
  required: boolean;
  methods: string[];
  issuer: string;
  me: Me | null;
}

/** The result of a signal. */
export interface SignalAnswer {
  execution_id: string;
  signal: string;
  signal_id: string;
  accepted: boolean;
  message: string;
  state: string;
  paused: boolean;
  started: string | null;
  waiting: boolean;
}

/** The reason and the target of a signal. */
export interface SignalBody {
  reason?: string;
  step?: string;
  signal_id?: string;
  data?: unknown;
}

/** The recorded decision about a signal. */
export interface SignalDecision {
  runId: string;
  signalId: string;
  type: string;
  decision: string;
  message: string;
  status: string;
  substatus: string | null;
  startedRunId: string | null;
  waiting: boolean;
}

/** A signal to a run. */
export interface SignalRequest {
  signal: string;
  signal_id?: string;
  reason?: string;
  step?: string;
  data?: unknown;
  by?: string;
}

/** A playbook to run against recorded outcomes. */
export interface SimulateBody {
  playbook: string | Record<string, unknown>;
  file?: string;
  files?: Record<string, string>;
  runs?: string[];
  last?: number;
  workload?: Record<string, unknown>;
  map?: Record<string, string>;
  strict?: boolean;
}

/** A call of a simulated run that the log does not answer, or only with other inputs or code. */
export interface SimulatedCall {
  step: string;
  run: number;
  item: number[];
  task: string;
  kind: string;
  attempt: number;
  reason: string;
  inputs: unknown;
}

/** The simulation of one run. */
export interface SimulatedRun {
  execution_id: string;
  verdict: string;
  recorded: string;
  simulated: string;
  steps: number;
  divergence: Record<string, unknown> | null;
  result: Record<string, unknown> | null;
  unanswered: SimulatedCall[];
  assumed: SimulatedCall[];
  problem: string;
}

/** The simulation of several runs. */
export interface SimulationReport {
  ok: boolean;
  verdicts: Record<string, number>;
  steps: number;
  runs: SimulatedRun[];
}

/** startRun, of a plan in the catalog or of a playbook's text. */
export interface StartRun {
  planId?: string;
  planVersion?: string;
  playbook?: string;
  parameters?: Record<string, unknown>;
  tenantId?: string;
  projectId?: string;
  environmentId?: string;
  idempotencyKey?: string;
}

export interface Started {
  execution_id: string;
  run_id: string;
  created: boolean;
  warnings: string[];
}

/** A run as it was after one event. */
export interface StateView {
  execution_id: string;
  at: number;
  head: number;
  event_type: string | null;
  timestamp: string | null;
  state: string;
  tokens: TokenView[];
  step_runs: StepRunView[];
  commands: CommandView[];
  steps: Record<string, StepSummary>;
  ctx: Record<string, unknown>;
  result: unknown;
  error: Record<string, unknown> | null;
  result_ref: Record<string, unknown> | null;
}

/** Exactly the seven fields of the status contract. */
export interface Status {
  execution_id: string;
  state: string;
  current_step: string | null;
  started_at: string | null;
  ended_at: string | null;
  terminal_event: string | null;
  completion_inferred: boolean;
}

/** An open step run. */
export interface StepRunView {
  step: string;
  run: number;
  status: string;
  args: Record<string, unknown>;
  scheduled_at: string;
  command_ids: string[];
  tasks: TaskView[];
  loop: LoopView | null;
}

export interface StepSummary {
  status: string;
  runs: number;
  items: ItemCounts | null;
  errors: ItemError[];
  denied: number;
  took_ms: number | null;
  error: Record<string, unknown> | null;
}

/** A result that a run stored outside the log. */
export interface StoredResult {
  ref: string;
  execution_id: string;
  name: string;
  step: string;
  run: number;
  task: string;
  kind: string;
  content_type: string;
  bytes: number;
  rows: number | null;
  sha256: string;
  scope: string;
  stored_at: string;
  expires_at: string | null;
  removed_at: string | null;
  seq: number;
  preview: string | null;
  stored_bytes: number | null;
  kept_until: string | null;
}

/** A run with work that no worker claims. */
export interface StuckRun {
  run: ListedRun;
  step: string;
  pool: string;
  since: string;
  why: string;
}

/** Runs with commands that no worker claims. */
export interface StuckRuns {
  runs: StuckRun[];
}

/** A run as `arclog run --json` prints it. */
export interface Summary {
  execution_id: string;
  run_id: string;
  state: string;
  terminal_event: string | null;
  started_at: string | null;
  ended_at: string | null;
  steps: Record<string, StepSummary>;
  ctx: Record<string, unknown>;
  result: unknown;
  error: Record<string, unknown> | null;
  result_ref: Record<string, unknown> | null;
  name: string;
  problems: Problem[];
  cause: Cause | null;
  next: string[];
  origin: Origin | null;
  imported: boolean;
}

/** The position of a pipeline. */
export interface TaskView {
  task: string;
  task_run: number;
  attempt: number;
  in_flight: boolean;
  since: string | null;
  due: string | null;
  iter: Record<string, unknown>;
}

export interface TokenView {
  id: number;
  place: string;
  step: string;
  args: Record<string, unknown>;
}

/** The origin of a value of a run. */
export interface Trace {
  execution_id: string;
  path: string;
  node: TraceNode;
  is_cut: boolean;
}

/** A value and its origin. */
export interface TraceNode {
  what: string;
  name: string;
  value: unknown;
  seq: number;
  step: string;
  task: string;
  item: number[];
  kind: string;
  source: string;
  template: string;
  origin: Record<string, unknown>;
  execution_id: string;
  is_repeated: boolean;
  sources: TraceNode[];
}

/** A page of the versions of a path, newest first. */
export interface VersionPage {
  versions: CatalogVersion[];
  next: number | null;
}

/** A reason why a run waits. */
export interface Wait {
  what: string;
  text: string;
  step: string;
  until: string | null;
  key: string;
  signal: string;
  child: string;
}

/** The reason why a run waits while no worker has any of its commands. */
export interface Waiting {
  what: string;
  step: string;
  name: string;
  until: string | null;
  count: number;
}

export interface Why {
  execution_id: string;
  state: string;
  summary: string;
  waits: Wait[];
  cause: Cause | null;
  next: string[];
  problems: Problem[];
}

export interface WorkerView {
  worker_id: string;
  state: string;
  pools: string[];
  kinds: string[];
  slots: number;
  busy: number;
  host: string;
  version: string;
  seen_at: string;
}

export interface Workers {
  workers: WorkerView[];
}

export interface Routes {
  "GET /api/activity": {
    path: Record<string, never>;
    query: { hours?: number };
    body: never;
    answer: Activity;
  };
  "GET /api/approvals": {
    path: Record<string, never>;
    query: { after?: string; limit?: number };
    body: never;
    answer: ApprovalPage;
  };
  "GET /api/audit": {
    path: Record<string, never>;
    query: { decision?: "" | "denied" | "granted"; before?: number; limit?: number };
    body: never;
    answer: AuditPage;
  };
  "GET /api/catalog": {
    path: Record<string, never>;
    query: { prefix?: string; after?: string; limit?: number; archived?: boolean };
    body: never;
    answer: CatalogPage;
  };
  "POST /api/catalog": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: RegisterRequest;
    answer: CatalogVersion;
  };
  "POST /api/catalog/archive": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: ArchiveBody;
    answer: CatalogEntry;
  };
  "GET /api/catalog/diff": {
    path: Record<string, never>;
    query: { path: string; from: number; to?: number; with?: string };
    body: never;
    answer: CatalogDiff;
  };
  "GET /api/catalog/show": {
    path: Record<string, never>;
    query: { path: string; version?: number };
    body: never;
    answer: CatalogVersion;
  };
  "GET /api/catalog/versions": {
    path: Record<string, never>;
    query: { path: string; before?: number; limit?: number };
    body: never;
    answer: VersionPage;
  };
  "POST /api/check": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: CheckBody;
    answer: CheckResult;
  };
  "GET /api/check/schema": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: never;
    answer: Record<string, unknown>;
  };
  "GET /api/credentials": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: never;
    answer: CredentialList;
  };
  "DELETE /api/credentials/{name}": {
    path: { name: string };
    query: { tenant?: string; project?: string; environment?: string };
    body: never;
    answer: CredentialRemoved;
  };
  "PUT /api/credentials/{name}": {
    path: { name: string };
    query: Record<string, never>;
    body: NewCredential;
    answer: SecretInfo;
  };
  "GET /api/doctor": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: never;
    answer: Diagnosis;
  };
  "GET /api/events": {
    path: Record<string, never>;
    query: { type?: string[]; since?: string; until?: string; entity?: string; where?: string; informative?: boolean; cursor?: string; limit?: number };
    body: never;
    answer: EventSearchPage;
  };
  "POST /api/events": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: unknown;
    answer: RecordedEvent;
  };
  "POST /api/events/batch": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: Record<string, unknown>;
    answer: BatchAnswer;
  };
  "POST /api/execute": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: ExecuteBody;
    answer: Started;
  };
  "GET /api/executions": {
    path: Record<string, never>;
    query: { state?: string[]; path?: string; before?: string; name?: string; limit?: number; q?: string; since?: string; until?: string; level?: string; parent?: string; origin?: string };
    body: never;
    answer: Executions;
  };
  "POST /api/executions": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: ExecuteBody;
    answer: Started;
  };
  "GET /api/executions/{execution_id}": {
    path: { execution_id: string };
    query: Record<string, never>;
    body: never;
    answer: Summary;
  };
  "POST /api/executions/{execution_id}/approve": {
    path: { execution_id: string };
    query: Record<string, never>;
    body: SignalBody;
    answer: SignalAnswer;
  };
  "POST /api/executions/{execution_id}/cancel": {
    path: { execution_id: string };
    query: Record<string, never>;
    body: SignalBody;
    answer: SignalAnswer;
  };
  "GET /api/executions/{execution_id}/diff": {
    path: { execution_id: string };
    query: { with: string };
    body: never;
    answer: RunsDiff;
  };
  "GET /api/executions/{execution_id}/events": {
    path: { execution_id: string };
    query: { after?: number; limit?: number; dialect?: string; type?: string[]; entity_type?: string; entity_id?: string };
    body: never;
    answer: EventPage;
  };
  "GET /api/executions/{execution_id}/events/stream": {
    path: { execution_id: string };
    query: { after?: number; dialect?: string; type?: string[] };
    body: never;
    answer: string;
  };
  "GET /api/executions/{execution_id}/export": {
    path: { execution_id: string };
    query: Record<string, never>;
    body: never;
    answer: string;
  };
  "POST /api/executions/{execution_id}/fork": {
    path: { execution_id: string };
    query: Record<string, never>;
    body: ForkBody;
    answer: Forked;
  };
  "GET /api/executions/{execution_id}/graph": {
    path: { execution_id: string };
    query: { format?: string };
    body: never;
    answer: Record<string, unknown>;
  };
  "GET /api/executions/{execution_id}/head": {
    path: { execution_id: string };
    query: { after?: number | null; until?: string; timeout_s?: number };
    body: never;
    answer: Head;
  };
  "GET /api/executions/{execution_id}/lineage": {
    path: { execution_id: string };
    query: Record<string, never>;
    body: never;
    answer: Lineage;
  };
  "GET /api/executions/{execution_id}/logs": {
    path: { execution_id: string };
    query: { step?: string; task?: string; iteration?: string; stream?: string[]; text?: string; since?: string; after?: number; limit?: number };
    body: never;
    answer: LogPage;
  };
  "GET /api/executions/{execution_id}/logs/stream": {
    path: { execution_id: string };
    query: { step?: string; task?: string; iteration?: string; stream?: string[]; text?: string; since?: string; after?: number };
    body: never;
    answer: string;
  };
  "GET /api/executions/{execution_id}/outline/stream": {
    path: { execution_id: string };
    query: { after?: number };
    body: never;
    answer: string;
  };
  "POST /api/executions/{execution_id}/pause": {
    path: { execution_id: string };
    query: Record<string, never>;
    body: SignalBody;
    answer: SignalAnswer;
  };
  "POST /api/executions/{execution_id}/reject": {
    path: { execution_id: string };
    query: Record<string, never>;
    body: SignalBody;
    answer: SignalAnswer;
  };
  "GET /api/executions/{execution_id}/replay": {
    path: { execution_id: string };
    query: Record<string, never>;
    body: never;
    answer: ReplayCheck;
  };
  "GET /api/executions/{execution_id}/results": {
    path: { execution_id: string };
    query: { after?: number; limit?: number };
    body: never;
    answer: ResultPage;
  };
  "POST /api/executions/{execution_id}/resume": {
    path: { execution_id: string };
    query: Record<string, never>;
    body: SignalBody;
    answer: SignalAnswer;
  };
  "POST /api/executions/{execution_id}/retry": {
    path: { execution_id: string };
    query: Record<string, never>;
    body: RetryBody;
    answer: SignalAnswer;
  };
  "POST /api/executions/{execution_id}/signal": {
    path: { execution_id: string };
    query: Record<string, never>;
    body: SignalRequest;
    answer: SignalAnswer;
  };
  "POST /api/executions/{execution_id}/skip": {
    path: { execution_id: string };
    query: Record<string, never>;
    body: SignalBody;
    answer: SignalAnswer;
  };
  "GET /api/executions/{execution_id}/source": {
    path: { execution_id: string };
    query: Record<string, never>;
    body: never;
    answer: string;
  };
  "GET /api/executions/{execution_id}/state": {
    path: { execution_id: string };
    query: { at?: number | null };
    body: never;
    answer: StateView;
  };
  "GET /api/executions/{execution_id}/status": {
    path: { execution_id: string };
    query: Record<string, never>;
    body: never;
    answer: Status;
  };
  "GET /api/executions/{execution_id}/trace": {
    path: { execution_id: string };
    query: { value: string };
    body: never;
    answer: Trace;
  };
  "GET /api/executions/{execution_id}/why": {
    path: { execution_id: string };
    query: Record<string, never>;
    body: never;
    answer: Why;
  };
  "GET /api/failing": {
    path: Record<string, never>;
    query: { limit?: number };
    body: never;
    answer: FailingPlaybooks;
  };
  "POST /api/gc": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: CollectBody;
    answer: Collected;
  };
  "POST /api/import": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: never;
    answer: Imported;
  };
  "GET /api/keys": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: never;
    answer: KeyList;
  };
  "POST /api/keys": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: NewKey;
    answer: CreatedKey;
  };
  "DELETE /api/keys/{key_id}": {
    path: { key_id: string };
    query: Record<string, never>;
    body: never;
    answer: KeyInfo;
  };
  "GET /api/leases": {
    path: Record<string, never>;
    query: { limit?: number };
    body: never;
    answer: Leases;
  };
  "GET /api/me": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: never;
    answer: Me;
  };
  "GET /api/pools": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: never;
    answer: Pools;
  };
  "DELETE /api/pools/{pool}/limit": {
    path: { pool: string };
    query: { tenant?: string };
    body: never;
    answer: PoolView;
  };
  "PUT /api/pools/{pool}/limit": {
    path: { pool: string };
    query: Record<string, never>;
    body: NewLimit;
    answer: PoolView;
  };
  "GET /api/pools/{pool}/scale": {
    path: { pool: string };
    query: Record<string, never>;
    body: never;
    answer: Scale;
  };
  "GET /api/resources": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: never;
    answer: Resources;
  };
  "DELETE /api/resources/{name}": {
    path: { name: string };
    query: Record<string, never>;
    body: never;
    answer: null;
  };
  "PUT /api/resources/{name}": {
    path: { name: string };
    query: Record<string, never>;
    body: NewResource;
    answer: ResourceView;
  };
  "GET /api/result": {
    path: Record<string, never>;
    query: { ref: string };
    body: never;
    answer: StoredResult;
  };
  "GET /api/result/resolve": {
    path: Record<string, never>;
    query: { ref: string };
    body: never;
    answer: string;
  };
  "POST /api/runs": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: StartRun;
    answer: RunStatus;
  };
  "POST /api/runs/{run_id}/cancel": {
    path: { run_id: string };
    query: Record<string, never>;
    body: CancelRun;
    answer: RunStatus;
  };
  "GET /api/runs/{run_id}/events": {
    path: { run_id: string };
    query: { afterSeq?: number; limit?: number };
    body: never;
    answer: Record<string, unknown>;
  };
  "POST /api/runs/{run_id}/signal": {
    path: { run_id: string };
    query: Record<string, never>;
    body: RunSignal;
    answer: SignalDecision;
  };
  "GET /api/runs/{run_id}/status": {
    path: { run_id: string };
    query: Record<string, never>;
    body: never;
    answer: RunStatus;
  };
  "GET /api/schedules": {
    path: Record<string, never>;
    query: { after?: string; limit?: number; order?: string };
    body: never;
    answer: Schedules;
  };
  "POST /api/schedules": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: NewSchedule;
    answer: ScheduleView;
  };
  "DELETE /api/schedules/{name}": {
    path: { name: string };
    query: Record<string, never>;
    body: never;
    answer: null;
  };
  "GET /api/schedules/{name}": {
    path: { name: string };
    query: Record<string, never>;
    body: never;
    answer: ScheduleView;
  };
  "POST /api/schedules/{name}/backfill": {
    path: { name: string };
    query: Record<string, never>;
    body: Backfill;
    answer: Queued;
  };
  "POST /api/schedules/{name}/pause": {
    path: { name: string };
    query: Record<string, never>;
    body: never;
    answer: ScheduleView;
  };
  "POST /api/schedules/{name}/resume": {
    path: { name: string };
    query: Record<string, never>;
    body: never;
    answer: ScheduleView;
  };
  "GET /api/schemas": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: never;
    answer: Record<string, string>;
  };
  "GET /api/schemas/{name}": {
    path: { name: string };
    query: Record<string, never>;
    body: never;
    answer: Record<string, unknown>;
  };
  "DELETE /api/session": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: never;
    answer: null;
  };
  "GET /api/session": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: never;
    answer: SignIn;
  };
  "POST /api/session": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: NewSession;
    answer: Me;
  };
  "GET /api/session/callback": {
    path: Record<string, never>;
    query: { code?: string; state?: string; error?: string };
    body: never;
    answer: never;
  };
  "GET /api/session/oidc": {
    path: Record<string, never>;
    query: { next?: string };
    body: never;
    answer: never;
  };
  "GET /api/settings": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: never;
    answer: SettingList;
  };
  "POST /api/simulate": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: SimulateBody;
    answer: SimulationReport;
  };
  "GET /api/stats": {
    path: Record<string, never>;
    query: { path: string; since?: string; limit?: number };
    body: never;
    answer: PlaybookStats;
  };
  "GET /api/stuck": {
    path: Record<string, never>;
    query: { limit?: number };
    body: never;
    answer: StuckRuns;
  };
  "GET /api/workers": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: never;
    answer: Workers;
  };
  "POST /api/workers/drain": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: Drain;
    answer: Workers;
  };
  "GET /health": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: never;
    answer: Record<string, unknown>;
  };
  "GET /metrics": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: never;
    answer: string;
  };
  "GET /ready": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: never;
    answer: Record<string, unknown>;
  };
}
