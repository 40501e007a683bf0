-- What was asked, answered and said about it. Requests, contents and embeddings lie in weekly
-- partitions of their own UUIDv7 key, so the key is unique by itself and the week is in the key.

CREATE EXTENSION IF NOT EXISTS vector;

CREATE SCHEMA obs;

-- The canonical text of a JSON value: keys sorted by code point, no spaces (db/canonical.py is the twin).
CREATE FUNCTION obs.canonical(value jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    CASE jsonb_typeof(value)
    WHEN 'object' THEN
        RETURN '{' || coalesce((
            SELECT string_agg(to_json(e.key)::text || ':' || obs.canonical(e.value), ',' ORDER BY e.key COLLATE "C")
            FROM jsonb_each(value) e), '') || '}';
    WHEN 'array' THEN
        RETURN '[' || coalesce((
            SELECT string_agg(obs.canonical(e.value), ',' ORDER BY e.place)
            FROM jsonb_array_elements(value) WITH ORDINALITY e (value, place)), '') || ']';
    ELSE
        RETURN value::text;
    END CASE;
END $$;

CREATE FUNCTION obs.json_hash(value jsonb) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    RETURN sha256(convert_to(obs.canonical(value), 'UTF8'));
END $$;

CREATE FUNCTION obs.prompt_hash(messages jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    RETURN encode(obs.json_hash(messages), 'hex');
END $$;

-- What is written is dated by recorded_at (consent: at), read from the clock after this lock is taken. Whoever
-- takes the lock exclusively and then reads the clock knows that nothing earlier is still to come.
CREATE FUNCTION obs.writers_lock() RETURNS bigint LANGUAGE sql IMMUTABLE
RETURN hashtextextended('obs.writers', 0);

CREATE FUNCTION obs.enter_as_writer() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(obs.writers_lock());
    RETURN NULL;
END $$;

CREATE TABLE obs.request (
    id uuid PRIMARY KEY DEFAULT uuidv7(),
    tenant text NOT NULL,
    endpoint text,
    requested_model text NOT NULL,
    base_model text NOT NULL,
    base_digest text NOT NULL,
    adapter_id text,
    adapter_digest text,
    assigned_adapter_id text,
    variant text NOT NULL CHECK (variant IN ('prod', 'canary', 'base', 'direct')),
    bucket integer CHECK (bucket BETWEEN 0 AND 9999),
    experiment text,
    user_key text NOT NULL,
    parent_id uuid,
    api text NOT NULL CHECK (api IN ('chat', 'completions', 'responses', 'embeddings', 'score')),
    started_at timestamptz NOT NULL,
    finished_at timestamptz NOT NULL,
    finish_reason text NOT NULL
        CHECK (finish_reason IN ('stop', 'length', 'abort', 'error', 'interrupted')),
    error text,
    prompt_tokens integer NOT NULL CHECK (prompt_tokens >= 0),
    cached_tokens integer NOT NULL CHECK (cached_tokens >= 0),
    completion_tokens integer NOT NULL CHECK (completion_tokens >= 0),
    queue_ms double precision,
    ttft_ms double precision,
    duration_ms double precision NOT NULL,
    sampling jsonb NOT NULL,
    stream boolean NOT NULL,
    source text NOT NULL CHECK (source IN ('traffic', 'eval')),
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp()
) PARTITION BY RANGE (id);
CREATE TRIGGER enter_as_writer BEFORE INSERT ON obs.request
    FOR EACH STATEMENT EXECUTE FUNCTION obs.enter_as_writer();
CREATE INDEX request_by_endpoint ON obs.request (endpoint, started_at);
CREATE INDEX request_by_parent ON obs.request (parent_id) WHERE parent_id IS NOT NULL;

CREATE TABLE obs.content (
    id uuid PRIMARY KEY,
    messages jsonb NOT NULL,
    completion text NOT NULL,
    pii_flags text[] NOT NULL DEFAULT '{}',
    prompt_hash text NOT NULL GENERATED ALWAYS AS (obs.prompt_hash(messages)) STORED
) PARTITION BY RANGE (id);

CREATE TABLE obs.embedding (
    id uuid PRIMARY KEY,
    model text NOT NULL,
    embedding halfvec NOT NULL CHECK (l2_norm(embedding) > 0),
    at timestamptz NOT NULL DEFAULT now()
) PARTITION BY RANGE (id);

CREATE TABLE obs.request_default PARTITION OF obs.request DEFAULT;
CREATE TABLE obs.content_default PARTITION OF obs.content DEFAULT;
CREATE TABLE obs.embedding_default PARTITION OF obs.embedding DEFAULT;

-- No foreign key: feedback may arrive before the request row, and outlives its content.
CREATE TABLE obs.feedback (
    id uuid PRIMARY KEY DEFAULT uuidv7(),
    tenant text NOT NULL,
    request_id uuid NOT NULL,
    kind text NOT NULL CHECK (kind IN ('thumbs', 'regenerate', 'edit', 'comment')),
    value smallint,
    text text,
    actor text NOT NULL,
    idempotency_key text,
    at timestamptz NOT NULL DEFAULT now(),
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (tenant, request_id, actor, idempotency_key),
    CONSTRAINT value_fits_kind CHECK (CASE kind
        WHEN 'thumbs' THEN value IS NOT NULL AND value IN (-1, 1)
        WHEN 'regenerate' THEN value IS NULL
        ELSE value IS NULL AND text IS NOT NULL AND text <> '' END)
);
CREATE TRIGGER enter_as_writer BEFORE INSERT ON obs.feedback
    FOR EACH STATEMENT EXECUTE FUNCTION obs.enter_as_writer();
CREATE INDEX feedback_by_request ON obs.feedback (request_id, kind, at, id);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON obs.feedback
    FOR EACH STATEMENT EXECUTE FUNCTION audit.refuse_change();

-- A ledger: the newest row of a tenant (user_key null) and of a user say what holds.
CREATE TABLE obs.consent (
    id uuid PRIMARY KEY DEFAULT uuidv7(),
    tenant serve.label NOT NULL REFERENCES serve.tenant,
    user_key text,
    action text NOT NULL CHECK (action IN ('granted', 'withdrawn')),
    actor text NOT NULL DEFAULT audit.actor(),
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TRIGGER enter_as_writer BEFORE INSERT ON obs.consent
    FOR EACH STATEMENT EXECUTE FUNCTION obs.enter_as_writer();
CREATE INDEX consent_by_user ON obs.consent (tenant, user_key, at, id);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON obs.consent
    FOR EACH STATEMENT EXECUTE FUNCTION audit.refuse_change();
CREATE FUNCTION obs.audit_consent() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM audit.append('consent.' || NEW.action, NEW.tenant,
        jsonb_build_object('consent_id', NEW.id, 'user_key', NEW.user_key));
    RETURN NULL;
END $$;
CREATE TRIGGER audit_consent AFTER INSERT ON obs.consent
    FOR EACH ROW EXECUTE FUNCTION obs.audit_consent();
