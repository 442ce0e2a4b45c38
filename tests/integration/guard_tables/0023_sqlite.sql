CREATE TABLE guard_owners (
  id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  base TEXT NOT NULL,
  owner TEXT NOT NULL,
  generation BIGINT NOT NULL,
  fingerprint TEXT,
  status TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  CONSTRAINT guard_owners_generation_check CHECK (generation >= 0),
  CONSTRAINT guard_owners_status_check CHECK (status IN ('degraded', 'deleting', 'failed', 'indexing', 'not_indexed', 'queued', 'success')),
  CONSTRAINT guard_owners_base_owner_key UNIQUE (base, owner)
);
CREATE INDEX guard_owners_active ON guard_owners (status, base, id) WHERE status IN ('deleting', 'indexing', 'queued');
CREATE INDEX guard_owners_broken ON guard_owners (status, id) WHERE status IN ('degraded', 'failed');
CREATE TABLE guard_slots (
  id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  owner_id INTEGER NOT NULL,
  kind TEXT NOT NULL,
  needs TEXT,
  job TEXT NOT NULL,
  wanted BIGINT NOT NULL,
  built BIGINT DEFAULT '0' NOT NULL,
  source BIGINT,
  missing INTEGER DEFAULT '0' NOT NULL,
  state TEXT NOT NULL,
  priority INTEGER NOT NULL,
  fence BIGINT DEFAULT '0' NOT NULL,
  holder TEXT,
  until BIGINT,
  due_at BIGINT,
  queued_at BIGINT NOT NULL,
  claimed_at BIGINT,
  progress_at BIGINT,
  rung_at BIGINT,
  attempts INTEGER DEFAULT '0' NOT NULL,
  error_code TEXT,
  error_params TEXT,
  stage TEXT DEFAULT '' NOT NULL,
  step INTEGER DEFAULT '0' NOT NULL,
  steps INTEGER DEFAULT '0' NOT NULL,
  done BIGINT DEFAULT '0' NOT NULL,
  total BIGINT DEFAULT '0' NOT NULL,
  recipe INTEGER,
  usage TEXT,
  reported_at BIGINT,
  CONSTRAINT guard_slots_ready_check CHECK (state <> 'ready' OR built = wanted),
  CONSTRAINT guard_slots_generations_check CHECK (0 <= built AND built <= wanted),
  CONSTRAINT guard_slots_priority_check CHECK (priority BETWEEN 0 AND 9),
  CONSTRAINT guard_slots_rest_has_no_lease_check CHECK (holder IS NULL OR state IN ('blocked', 'deleting', 'queued', 'running', 'waiting')),
  CONSTRAINT guard_slots_running_has_lease_check CHECK (state <> 'running' OR holder IS NOT NULL),
  CONSTRAINT guard_slots_due_check CHECK (due_at IS NOT NULL OR NOT (state IN ('running', 'waiting'))),
  CONSTRAINT guard_slots_state_check CHECK (state IN ('blocked', 'cancelled', 'deleting', 'failed', 'queued', 'ready', 'running', 'waiting')),
  CONSTRAINT guard_slots_owner_id_kind_key UNIQUE (owner_id, kind),
  CONSTRAINT guard_slots_attempts_check CHECK (attempts >= 0),
  CONSTRAINT guard_slots_missing_check CHECK (missing >= 0),
  CONSTRAINT guard_slots_lease_check CHECK ((holder IS NULL) = (until IS NULL)),
  CONSTRAINT guard_slots_owner_id_fkey FOREIGN KEY(owner_id) REFERENCES guard_owners (id)
);
CREATE INDEX guard_slots_claimed ON guard_slots (kind, priority, queued_at) WHERE claimed_at IS NOT NULL;
CREATE INDEX guard_slots_held ON guard_slots (holder) WHERE holder IS NOT NULL;
CREATE INDEX guard_slots_queued ON guard_slots (kind, priority, queued_at, id) WHERE state = 'queued';
CREATE INDEX guard_slots_rung ON guard_slots (kind, rung_at) WHERE rung_at IS NOT NULL;
CREATE INDEX guard_slots_served ON guard_slots (recipe) WHERE recipe IS NOT NULL;
CREATE INDEX guard_slots_timed ON guard_slots (kind, due_at) WHERE state IN ('deleting', 'running', 'waiting');
CREATE TABLE guard_jobs (
  id TEXT NOT NULL,
  owner_id INTEGER NOT NULL,
  base TEXT NOT NULL,
  owner TEXT NOT NULL,
  generation BIGINT NOT NULL,
  operation TEXT NOT NULL,
  cause TEXT NOT NULL,
  requester TEXT NOT NULL,
  priority INTEGER NOT NULL,
  open INTEGER NOT NULL,
  outcome TEXT,
  results TEXT,
  created_at BIGINT NOT NULL,
  finished_at BIGINT,
  payload TEXT,
  untold INTEGER DEFAULT '0' NOT NULL,
  prioritised_at BIGINT,
  traceparent TEXT,
  CONSTRAINT guard_jobs_pkey PRIMARY KEY (id),
  CONSTRAINT guard_jobs_finished_check CHECK ((outcome IS NULL) = (finished_at IS NULL)),
  CONSTRAINT guard_jobs_owner_id_generation_key UNIQUE (owner_id, generation),
  CONSTRAINT guard_jobs_operation_check CHECK (operation IN ('cancel', 'change', 'delete', 'drop', 'force', 'index', 'reindex', 'renew', 'retry')),
  CONSTRAINT guard_jobs_ended_check CHECK ((outcome IS NULL) = (open > 0)),
  CONSTRAINT guard_jobs_outcome_check CHECK (outcome IS NULL OR outcome IN ('cancelled', 'degraded', 'deleted', 'failed', 'success', 'superseded')),
  CONSTRAINT guard_jobs_open_check CHECK (open >= 0)
);
CREATE UNIQUE INDEX guard_jobs_active ON guard_jobs (owner_id) WHERE outcome IS NULL;
CREATE INDEX guard_jobs_ended ON guard_jobs (base, finished_at, id) WHERE finished_at IS NOT NULL;
CREATE INDEX guard_jobs_finished ON guard_jobs (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX guard_jobs_queue ON guard_jobs (priority, created_at, id) WHERE outcome IS NULL;
CREATE INDEX guard_jobs_queue_of_base ON guard_jobs (base, priority, created_at, id) WHERE outcome IS NULL;
CREATE INDEX guard_jobs_unsuccessful ON guard_jobs (outcome, finished_at, id, base) WHERE outcome <> 'success';
CREATE INDEX guard_jobs_untold ON guard_jobs (base, finished_at) WHERE untold = 1;
CREATE TABLE guard_pauses (
  base TEXT NOT NULL,
  since BIGINT NOT NULL,
  stop INTEGER NOT NULL,
  requester TEXT NOT NULL,
  resumed_at BIGINT,
  CONSTRAINT guard_pauses_pkey PRIMARY KEY (base),
  CONSTRAINT guard_pauses_stop_check CHECK (stop IN (0, 1))
);
CREATE TABLE guard_quotas (
  base TEXT NOT NULL,
  per_day INTEGER NOT NULL,
  day BIGINT NOT NULL,
  used INTEGER NOT NULL,
  CONSTRAINT guard_quotas_pkey PRIMARY KEY (base),
  CONSTRAINT guard_quotas_used_check CHECK (used >= 0),
  CONSTRAINT guard_quotas_per_day_check CHECK (per_day > 0)
);
CREATE TABLE guard_events (
  id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  at BIGINT NOT NULL,
  type TEXT NOT NULL,
  base TEXT NOT NULL,
  owner TEXT NOT NULL,
  kind TEXT,
  job TEXT,
  generation BIGINT,
  fence BIGINT,
  data TEXT NOT NULL,
  xid BIGINT DEFAULT '0' NOT NULL
);
CREATE TABLE guard_event_marks (
  name TEXT NOT NULL,
  xid BIGINT NOT NULL,
  id BIGINT NOT NULL,
  CONSTRAINT guard_event_marks_pkey PRIMARY KEY (name)
);
CREATE TABLE guard_duplicates (
  id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  at BIGINT NOT NULL,
  base TEXT NOT NULL,
  owner TEXT NOT NULL,
  operation TEXT NOT NULL,
  verdict TEXT NOT NULL,
  reason TEXT NOT NULL,
  job TEXT,
  requester TEXT NOT NULL,
  cost FLOAT NOT NULL
);
CREATE INDEX guard_duplicates_owner ON guard_duplicates (base, owner);
CREATE TABLE guard_workers (
  holder TEXT NOT NULL,
  seen_at BIGINT NOT NULL,
  CONSTRAINT guard_workers_pkey PRIMARY KEY (holder)
);
CREATE TABLE guard_counters (
  name TEXT NOT NULL,
  value BIGINT NOT NULL,
  CONSTRAINT guard_counters_pkey PRIMARY KEY (name)
);
CREATE TABLE guard_metric_totals (
  name TEXT NOT NULL,
  kind TEXT NOT NULL,
  detail TEXT NOT NULL,
  value FLOAT NOT NULL,
  CONSTRAINT guard_metric_totals_pkey PRIMARY KEY (name, kind, detail)
);
CREATE TABLE guard_metric_increments (
  id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL,
  kind TEXT NOT NULL,
  detail TEXT NOT NULL,
  value FLOAT NOT NULL
);
CREATE TABLE guard_holdfast_version (
  version_num VARCHAR(32) NOT NULL,
  CONSTRAINT "guard_None" PRIMARY KEY (version_num)
);
INSERT INTO guard_counters (name, value) VALUES ('stale_write_rejected.completed', 0);
INSERT INTO guard_counters (name, value) VALUES ('stale_write_rejected.failed', 0);
INSERT INTO guard_counters (name, value) VALUES ('stale_write_rejected.released', 0);
INSERT INTO guard_counters (name, value) VALUES ('stale_write_rejected.forgotten', 0);
INSERT INTO guard_counters (name, value) VALUES ('stale_write_rejected.extended', 0);
INSERT INTO guard_counters (name, value) VALUES ('stale_write_rejected.guarded', 0);
INSERT INTO guard_event_marks (name, xid, id) VALUES ('swept', 0, 0);
INSERT INTO guard_event_marks (name, xid, id) VALUES ('metrics', 0, 0);
INSERT INTO guard_holdfast_version (version_num) VALUES ('0023');
