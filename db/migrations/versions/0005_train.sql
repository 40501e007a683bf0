-- What was trained on what, and how the results were measured.

CREATE SCHEMA train;

CREATE TABLE train.snapshot (
    id uuid PRIMARY KEY DEFAULT uuidv7(),
    tenant serve.label NOT NULL REFERENCES serve.tenant,
    endpoint serve.label NOT NULL REFERENCES serve.endpoint,
    method text NOT NULL,
    as_of timestamptz NOT NULL,
    seed bigint NOT NULL,
    params jsonb NOT NULL,
    sql text NOT NULL,
    counts json NOT NULL,  -- json, not jsonb: the order of the filters is kept
    rows integer NOT NULL CHECK (rows > 0),
    desirable integer NOT NULL CHECK (desirable >= 0),
    undesirable integer NOT NULL CHECK (undesirable >= 0),
    set_hash text NOT NULL,
    created_by text NOT NULL DEFAULT audit.actor(),
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX snapshot_by_endpoint ON train.snapshot (endpoint, id);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON train.snapshot
    FOR EACH STATEMENT EXECUTE FUNCTION audit.refuse_change();

CREATE TABLE train.snapshot_row (
    snapshot_id uuid NOT NULL REFERENCES train.snapshot,
    ordinal integer NOT NULL CHECK (ordinal >= 0),
    request_id uuid NOT NULL,
    origin text NOT NULL CHECK (origin IN ('thumbs', 'edit', 'corrected', 'regenerated', 'accepted')),
    label boolean NOT NULL,
    payload jsonb NOT NULL,
    payload_hash text NOT NULL,
    PRIMARY KEY (snapshot_id, ordinal),
    UNIQUE (snapshot_id, payload_hash)
);
CREATE INDEX snapshot_row_by_request ON train.snapshot_row (request_id);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON train.snapshot_row
    FOR EACH STATEMENT EXECUTE FUNCTION audit.refuse_change();

CREATE TABLE train.run (
    id uuid PRIMARY KEY DEFAULT uuidv7(),
    endpoint serve.label NOT NULL REFERENCES serve.endpoint,
    adapter_id serve.label NOT NULL,
    method text NOT NULL,
    snapshot_id uuid NOT NULL REFERENCES train.snapshot,
    base_model serve.label NOT NULL REFERENCES serve.base_model,
    base_digest text NOT NULL,
    parent serve.label REFERENCES serve.adapter,
    params jsonb NOT NULL,
    versions jsonb NOT NULL,
    status text NOT NULL DEFAULT 'running' CHECK (status IN ('running', 'finished', 'failed')),
    step integer NOT NULL DEFAULT 0 CHECK (step >= 0),
    total_steps integer CHECK (total_steps > 0),
    figures jsonb NOT NULL DEFAULT '{}',
    adapter_digest text,
    error text,
    started_at timestamptz NOT NULL DEFAULT now(),
    heartbeat_at timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,
    CONSTRAINT end_is_whole CHECK (CASE status
        WHEN 'running' THEN finished_at IS NULL
        WHEN 'finished' THEN finished_at IS NOT NULL AND adapter_digest IS NOT NULL
        ELSE finished_at IS NOT NULL AND error IS NOT NULL END)
);
CREATE INDEX run_by_snapshot ON train.run (snapshot_id);
ALTER TABLE serve.adapter ADD FOREIGN KEY (run_id) REFERENCES train.run;

-- The curve of a run: one point a step that was reported.
CREATE TABLE train.run_point (
    run_id uuid NOT NULL REFERENCES train.run,
    step integer NOT NULL CHECK (step >= 0),
    figures jsonb NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (run_id, step)
);

CREATE TABLE train.schedule (
    id uuid PRIMARY KEY DEFAULT uuidv7(),
    endpoint serve.label NOT NULL REFERENCES serve.endpoint,
    method text NOT NULL,
    cron text NOT NULL,
    params jsonb NOT NULL DEFAULT '{}',
    enabled boolean NOT NULL DEFAULT true,
    last_run_at timestamptz,
    UNIQUE (endpoint, method)
);

-- A suite in the versions it has had; the one registered last is the one that counts.
CREATE TABLE train.eval_suite (
    name text NOT NULL,
    suite_hash text NOT NULL,
    n_cases integer NOT NULL CHECK (n_cases > 0),
    registered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (name, suite_hash)
);

-- What the gate demands. A row for an endpoint stands before the row for all (endpoint null).
CREATE TABLE train.eval_metric (
    suite text NOT NULL,
    metric text NOT NULL,
    endpoint serve.label REFERENCES serve.endpoint,
    direction text NOT NULL CHECK (direction IN ('higher', 'lower')),
    floor double precision CHECK (floor > '-Infinity' AND floor < 'Infinity'),
    tolerance double precision NOT NULL CHECK (tolerance >= 0 AND tolerance < 'Infinity'),
    anchor_tolerance double precision CHECK (anchor_tolerance >= 0 AND anchor_tolerance < 'Infinity'),
    min_n integer NOT NULL CHECK (min_n > 0),
    max_unscored double precision NOT NULL CHECK (max_unscored BETWEEN 0 AND 1),
    required boolean NOT NULL,
    UNIQUE NULLS NOT DISTINCT (suite, metric, endpoint)
);

-- NaN is greater than every number in Postgres, so an upper bound keeps it out as well.
CREATE TABLE train.eval_result (
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    subject text NOT NULL,
    base_digest text NOT NULL,
    suite text NOT NULL,
    suite_hash text NOT NULL,
    metric text NOT NULL,
    attempt integer NOT NULL CHECK (attempt > 0),
    value double precision CHECK (value > '-Infinity' AND value < 'Infinity'),
    low double precision CHECK (low > '-Infinity' AND low < 'Infinity'),
    high double precision CHECK (high > '-Infinity' AND high < 'Infinity'),
    n integer NOT NULL CHECK (n >= 0),
    unscored integer NOT NULL CHECK (unscored >= 0),
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (subject, base_digest, suite, attempt, metric),
    CHECK (low <= high)
);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON train.eval_result
    FOR EACH STATEMENT EXECUTE FUNCTION audit.refuse_change();

CREATE TABLE train.eval_case (
    subject text NOT NULL,
    base_digest text NOT NULL,
    suite text NOT NULL,
    attempt integer NOT NULL CHECK (attempt > 0),
    case_id text NOT NULL,
    prompt_hash text NOT NULL,
    completion text NOT NULL,
    finish_reason text NOT NULL,
    scores jsonb NOT NULL,
    PRIMARY KEY (subject, base_digest, suite, attempt, case_id)
);

CREATE TABLE train.judge_calibration (
    id uuid PRIMARY KEY DEFAULT uuidv7(),
    suite text NOT NULL,
    suite_hash text NOT NULL,
    judge jsonb NOT NULL,
    n integer NOT NULL CHECK (n > 0),
    agreement double precision NOT NULL CHECK (agreement BETWEEN 0 AND 1),
    kappa double precision NOT NULL CHECK (kappa BETWEEN -1 AND 1),
    kappa_low double precision NOT NULL CHECK (kappa_low BETWEEN -1 AND 1),
    kappa_high double precision NOT NULL CHECK (kappa_high BETWEEN -1 AND 1),
    accepted boolean NOT NULL,
    at timestamptz NOT NULL DEFAULT now()
);
