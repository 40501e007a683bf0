-- What is served: tenants, base models, endpoints and the registry of adapters.

CREATE SCHEMA serve;

-- A name that clients may send. Opaque; the unit separator of serve.bucket can not be in it.
CREATE DOMAIN serve.label AS text
    CHECK (length(VALUE) BETWEEN 1 AND 200 AND VALUE !~ '[[:cntrl:]]');

CREATE TABLE serve.tenant (
    id serve.label PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO serve.tenant (id) VALUES ('default');

CREATE TABLE serve.api_key (
    id uuid PRIMARY KEY DEFAULT uuidv7(),
    tenant serve.label NOT NULL REFERENCES serve.tenant,
    digest bytea NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
    role text NOT NULL CHECK (role IN ('client', 'admin')),
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz
);

CREATE FUNCTION serve.record_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM audit.append(CASE WHEN NEW.revoked_at IS NULL THEN 'key.created' ELSE 'key.revoked' END,
                         NEW.id::text, jsonb_build_object('tenant', NEW.tenant, 'role', NEW.role));
    RETURN NULL;
END $$;
CREATE TRIGGER record_key AFTER INSERT OR UPDATE OF revoked_at ON serve.api_key
    FOR EACH ROW EXECUTE FUNCTION serve.record_key();

CREATE TABLE serve.base_model (
    name serve.label PRIMARY KEY,
    digest text NOT NULL CHECK (digest NOT IN ('', 'base')),
    folder text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE serve.endpoint (
    name serve.label PRIMARY KEY,
    tenant serve.label NOT NULL REFERENCES serve.tenant,
    base_model serve.label NOT NULL REFERENCES serve.base_model,
    experiment serve.label NOT NULL DEFAULT 'none',
    anchor serve.label,
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (name, base_model)
);

CREATE TABLE serve.adapter (
    id serve.label PRIMARY KEY,
    digest text NOT NULL CHECK (digest NOT IN ('', 'base')),
    base_model serve.label NOT NULL REFERENCES serve.base_model,
    endpoint serve.label,
    status text NOT NULL DEFAULT 'candidate'
        CHECK (status IN ('candidate', 'canary', 'prod', 'retired', 'rejected')),
    traffic_pct numeric(5, 2) NOT NULL DEFAULT 0 CHECK (traffic_pct BETWEEN 0 AND 100),
    canary_start integer CHECK (canary_start BETWEEN 0 AND 9999),
    loaded boolean NOT NULL DEFAULT true,
    pinned boolean NOT NULL DEFAULT false,
    store_uri text NOT NULL,
    config jsonb NOT NULL,
    bytes bigint NOT NULL CHECK (bytes >= 0),
    parent serve.label REFERENCES serve.adapter,
    replaced serve.label REFERENCES serve.adapter,
    run_id uuid,
    created_at timestamptz NOT NULL DEFAULT now(),
    FOREIGN KEY (endpoint, base_model) REFERENCES serve.endpoint (name, base_model),
    CONSTRAINT only_endpoints_have_status CHECK (endpoint IS NOT NULL OR status = 'candidate'),
    CONSTRAINT share_follows_status CHECK (CASE status
        WHEN 'canary' THEN canary_start IS NOT NULL
        WHEN 'prod' THEN traffic_pct = 100 AND canary_start IS NULL
        ELSE traffic_pct = 0 AND canary_start IS NULL END)
);
CREATE UNIQUE INDEX one_prod_per_endpoint ON serve.adapter (endpoint) WHERE status = 'prod';
CREATE INDEX adapter_by_endpoint ON serve.adapter (endpoint);
CREATE INDEX adapter_by_digest ON serve.adapter (digest);

ALTER TABLE serve.endpoint ADD FOREIGN KEY (anchor) REFERENCES serve.adapter;

CREATE TABLE serve.adapter_event (
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    adapter_id serve.label NOT NULL REFERENCES serve.adapter,
    endpoint serve.label,
    kind text NOT NULL
        CHECK (kind IN ('registered', 'status', 'traffic', 'replaced', 'loaded', 'unloaded', 'pinned', 'unpinned')),
    from_status text,
    to_status text NOT NULL,
    from_digest text,
    to_digest text NOT NULL,
    traffic_pct numeric(5, 2) NOT NULL,
    actor text NOT NULL,
    reason text,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX adapter_event_by_adapter ON serve.adapter_event (adapter_id, id);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON serve.adapter_event
    FOR EACH STATEMENT EXECUTE FUNCTION audit.refuse_change();

-- Where adapters are now, as the replicas last told it: written every few seconds, worth nothing after a crash.
CREATE UNLOGGED TABLE serve.residency (
    replica text NOT NULL,
    base_model serve.label NOT NULL,
    adapter_digest text NOT NULL,
    state text NOT NULL,
    slot integer,
    bytes bigint NOT NULL CHECK (bytes >= 0),
    last_use timestamptz,
    PRIMARY KEY (replica, adapter_digest)
) WITH (fillfactor = 70);

-- One row; its number grows with every change that a router must see.
CREATE TABLE serve.registry_epoch (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    epoch bigint NOT NULL
);
INSERT INTO serve.registry_epoch (epoch) VALUES (1);

-- The last of these numbers, and which adapter each stands for (null: a base model or an endpoint). The mark is
-- random: a database restored from a backup counts on from where that was, with other marks.
CREATE TABLE serve.registry_change (
    epoch bigint PRIMARY KEY,
    adapter_id serve.label,
    mark uuid NOT NULL DEFAULT gen_random_uuid()
);

CREATE FUNCTION serve.bump_epoch(adapter text DEFAULT NULL) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    fresh bigint;
BEGIN
    UPDATE serve.registry_epoch SET epoch = epoch + 1 RETURNING epoch INTO fresh;
    INSERT INTO serve.registry_change (epoch, adapter_id) VALUES (fresh, adapter);
    DELETE FROM serve.registry_change c WHERE c.epoch <= fresh - 10000;
    PERFORM pg_notify('noria_registry', fresh::text);
END $$;

CREATE FUNCTION serve.bump_epoch_after() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM serve.bump_epoch();
    RETURN NULL;
END $$;
CREATE TRIGGER bump_epoch AFTER INSERT OR UPDATE OR DELETE ON serve.base_model
    FOR EACH ROW EXECUTE FUNCTION serve.bump_epoch_after();
CREATE TRIGGER bump_epoch AFTER INSERT OR UPDATE OR DELETE ON serve.endpoint
    FOR EACH ROW EXECUTE FUNCTION serve.bump_epoch_after();

-- A name means one thing: an adapter could otherwise be registered over an endpoint and take its traffic.
CREATE TABLE serve.taken_name (
    name serve.label PRIMARY KEY,
    kind text NOT NULL
);
CREATE FUNCTION serve.take_name() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    wanted serve.label := CASE TG_TABLE_NAME WHEN 'adapter' THEN to_jsonb(NEW) ->> 'id' ELSE to_jsonb(NEW) ->> 'name' END;
    held text;
BEGIN
    INSERT INTO serve.taken_name VALUES (wanted, TG_TABLE_NAME) ON CONFLICT DO NOTHING;
    SELECT kind INTO held FROM serve.taken_name WHERE name = wanted;
    IF held <> TG_TABLE_NAME THEN
        RAISE EXCEPTION 'the name % already belongs to an item of serve.%, it can not be one of serve.% too',
            quote_literal(wanted), held, TG_TABLE_NAME USING ERRCODE = 'unique_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER take_name BEFORE INSERT ON serve.base_model
    FOR EACH ROW EXECUTE FUNCTION serve.take_name();
CREATE TRIGGER take_name BEFORE INSERT ON serve.endpoint
    FOR EACH ROW EXECUTE FUNCTION serve.take_name();
CREATE TRIGGER take_name BEFORE INSERT ON serve.adapter
    FOR EACH ROW EXECUTE FUNCTION serve.take_name();

-- Sticky bucket of a key, 0 to 9999; tests/data/bucket_vectors.json holds golden values.
CREATE FUNCTION serve.bucket(endpoint text, experiment text, key text) RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN ((('x' || left(encode(sha256(
    convert_to(endpoint || chr(31) || experiment || chr(31) || key, 'UTF8')
), 'hex'), 15))::bit(60)::bigint) % 10000)::integer;
