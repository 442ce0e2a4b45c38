CREATE SCHEMA IF NOT EXISTS guard;
CREATE TABLE guard.owners (
  id BIGSERIAL NOT NULL,
  base TEXT NOT NULL,
  owner TEXT NOT NULL,
  generation BIGINT NOT NULL,
  fingerprint TEXT,
  status TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  CONSTRAINT owners_pkey PRIMARY KEY (id),
  CONSTRAINT owners_generation_check CHECK (generation >= 0),
  CONSTRAINT owners_status_check CHECK (status IN ('degraded', 'deleting', 'failed', 'indexing', 'not_indexed', 'queued', 'success')),
  CONSTRAINT owners_base_owner_key UNIQUE (base, owner)
);
CREATE INDEX owners_active ON guard.owners (status, base, id) WHERE status IN ('deleting', 'indexing', 'queued');
CREATE INDEX owners_broken ON guard.owners (status, id) WHERE status IN ('degraded', 'failed');
CREATE TABLE guard.slots (
  id BIGSERIAL NOT NULL,
  owner_id BIGINT NOT NULL,
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
  recipe BIGINT,
  usage TEXT,
  reported_at BIGINT,
  CONSTRAINT slots_pkey PRIMARY KEY (id),
  CONSTRAINT slots_ready_check CHECK (state <> 'ready' OR built = wanted),
  CONSTRAINT slots_generations_check CHECK (0 <= built AND built <= wanted),
  CONSTRAINT slots_priority_check CHECK (priority BETWEEN 0 AND 9),
  CONSTRAINT slots_rest_has_no_lease_check CHECK (holder IS NULL OR state IN ('blocked', 'deleting', 'queued', 'running', 'waiting')),
  CONSTRAINT slots_running_has_lease_check CHECK (state <> 'running' OR holder IS NOT NULL),
  CONSTRAINT slots_due_check CHECK (due_at IS NOT NULL OR NOT (state IN ('running', 'waiting'))),
  CONSTRAINT slots_state_check CHECK (state IN ('blocked', 'cancelled', 'deleting', 'failed', 'queued', 'ready', 'running', 'waiting')),
  CONSTRAINT slots_owner_id_kind_key UNIQUE (owner_id, kind),
  CONSTRAINT slots_attempts_check CHECK (attempts >= 0),
  CONSTRAINT slots_missing_check CHECK (missing >= 0),
  CONSTRAINT slots_lease_check CHECK ((holder IS NULL) = (until IS NULL)),
  CONSTRAINT slots_owner_id_fkey FOREIGN KEY(owner_id) REFERENCES guard.owners (id)
);
CREATE INDEX slots_claimed ON guard.slots (kind, priority, queued_at) WHERE claimed_at IS NOT NULL;
CREATE INDEX slots_held ON guard.slots (holder) WHERE holder IS NOT NULL;
CREATE INDEX slots_queued ON guard.slots (kind, priority, queued_at, id) WHERE state = 'queued';
CREATE INDEX slots_rung ON guard.slots (kind, rung_at) WHERE rung_at IS NOT NULL;
CREATE INDEX slots_served ON guard.slots (recipe) WHERE recipe IS NOT NULL;
CREATE INDEX slots_timed ON guard.slots (kind, due_at) WHERE state IN ('deleting', 'running', 'waiting');
CREATE TABLE guard.jobs (
  id TEXT NOT NULL,
  owner_id BIGINT NOT NULL,
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
  CONSTRAINT jobs_pkey PRIMARY KEY (id),
  CONSTRAINT jobs_finished_check CHECK ((outcome IS NULL) = (finished_at IS NULL)),
  CONSTRAINT jobs_owner_id_generation_key UNIQUE (owner_id, generation),
  CONSTRAINT jobs_operation_check CHECK (operation IN ('cancel', 'change', 'delete', 'drop', 'force', 'index', 'reindex', 'renew', 'retry')),
  CONSTRAINT jobs_ended_check CHECK ((outcome IS NULL) = (open > 0)),
  CONSTRAINT jobs_outcome_check CHECK (outcome IS NULL OR outcome IN ('cancelled', 'degraded', 'deleted', 'failed', 'success', 'superseded')),
  CONSTRAINT jobs_open_check CHECK (open >= 0)
);
CREATE UNIQUE INDEX jobs_active ON guard.jobs (owner_id) WHERE outcome IS NULL;
CREATE INDEX jobs_ended ON guard.jobs (base, finished_at, id) WHERE finished_at IS NOT NULL;
CREATE INDEX jobs_finished ON guard.jobs (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX jobs_queue ON guard.jobs (priority, created_at, id) WHERE outcome IS NULL;
CREATE INDEX jobs_queue_of_base ON guard.jobs (base, priority, created_at, id) WHERE outcome IS NULL;
CREATE INDEX jobs_unsuccessful ON guard.jobs (outcome, finished_at, id, base) WHERE outcome <> 'success';
CREATE INDEX jobs_untold ON guard.jobs (base, finished_at) WHERE untold = 1;
CREATE TABLE guard.pauses (
  base TEXT NOT NULL,
  since BIGINT NOT NULL,
  stop INTEGER NOT NULL,
  requester TEXT NOT NULL,
  resumed_at BIGINT,
  CONSTRAINT pauses_pkey PRIMARY KEY (base),
  CONSTRAINT pauses_stop_check CHECK (stop IN (0, 1))
);
CREATE TABLE guard.quotas (
  base TEXT NOT NULL,
  per_day INTEGER NOT NULL,
  day BIGINT NOT NULL,
  used INTEGER NOT NULL,
  CONSTRAINT quotas_pkey PRIMARY KEY (base),
  CONSTRAINT quotas_used_check CHECK (used >= 0),
  CONSTRAINT quotas_per_day_check CHECK (per_day > 0)
);
CREATE TABLE guard.events (
  id BIGSERIAL NOT NULL,
  at BIGINT NOT NULL,
  type TEXT NOT NULL,
  base TEXT NOT NULL,
  owner TEXT NOT NULL,
  kind TEXT,
  job TEXT,
  generation BIGINT,
  fence BIGINT,
  data TEXT NOT NULL,
  xid BIGINT DEFAULT '0' NOT NULL,
  CONSTRAINT events_pkey PRIMARY KEY (id)
);
CREATE INDEX events_order ON guard.events (xid, id);
CREATE TABLE guard.event_marks (
  name TEXT NOT NULL,
  xid BIGINT NOT NULL,
  id BIGINT NOT NULL,
  CONSTRAINT event_marks_pkey PRIMARY KEY (name)
);
CREATE TABLE guard.duplicates (
  id BIGSERIAL NOT NULL,
  at BIGINT NOT NULL,
  base TEXT NOT NULL,
  owner TEXT NOT NULL,
  operation TEXT NOT NULL,
  verdict TEXT NOT NULL,
  reason TEXT NOT NULL,
  job TEXT,
  requester TEXT NOT NULL,
  cost FLOAT NOT NULL,
  CONSTRAINT duplicates_pkey PRIMARY KEY (id)
);
CREATE INDEX duplicates_owner ON guard.duplicates (base, owner);
CREATE TABLE guard.workers (
  holder TEXT NOT NULL,
  seen_at BIGINT NOT NULL,
  CONSTRAINT workers_pkey PRIMARY KEY (holder)
);
CREATE TABLE guard.counters (
  name TEXT NOT NULL,
  value BIGINT NOT NULL,
  CONSTRAINT counters_pkey PRIMARY KEY (name)
);
CREATE TABLE guard.metric_totals (
  name TEXT NOT NULL,
  kind TEXT NOT NULL,
  detail TEXT NOT NULL,
  value FLOAT NOT NULL,
  CONSTRAINT metric_totals_pkey PRIMARY KEY (name, kind, detail)
);
CREATE TABLE guard.metric_increments (
  id BIGSERIAL NOT NULL,
  name TEXT NOT NULL,
  kind TEXT NOT NULL,
  detail TEXT NOT NULL,
  value FLOAT NOT NULL,
  CONSTRAINT metric_increments_pkey PRIMARY KEY (id)
);
CREATE TABLE guard.holdfast_version (
  version_num VARCHAR(32) NOT NULL,
  CONSTRAINT "None" PRIMARY KEY (version_num)
);
ALTER TABLE guard.owners SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
ALTER TABLE guard.slots SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
ALTER TABLE guard.jobs SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02, fillfactor = 85);
ALTER TABLE guard.events SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05);
ALTER TABLE guard.duplicates SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05);
ALTER TABLE guard.metric_increments SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
ALTER TABLE guard.metric_totals SET (fillfactor = 50);
INSERT INTO guard.counters (name, value) VALUES ('stale_write_rejected.completed', 0);
INSERT INTO guard.counters (name, value) VALUES ('stale_write_rejected.failed', 0);
INSERT INTO guard.counters (name, value) VALUES ('stale_write_rejected.released', 0);
INSERT INTO guard.counters (name, value) VALUES ('stale_write_rejected.forgotten', 0);
INSERT INTO guard.counters (name, value) VALUES ('stale_write_rejected.extended', 0);
INSERT INTO guard.counters (name, value) VALUES ('stale_write_rejected.guarded', 0);
INSERT INTO guard.event_marks (name, xid, id) VALUES ('swept', 0, 0);
INSERT INTO guard.event_marks (name, xid, id) VALUES ('metrics', 0, 0);
INSERT INTO guard.holdfast_version (version_num) VALUES ('0023');
