CREATE SCHEMA audit;

CREATE SCHEMA obs;

CREATE SCHEMA serve;

CREATE SCHEMA train;

CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public;

COMMENT ON EXTENSION vector IS 'vector data type and ivfflat and hnsw access methods';

CREATE DOMAIN serve.label AS text
	CONSTRAINT label_check CHECK ((((length(VALUE) >= 1) AND (length(VALUE) <= 200)) AND (VALUE !~ '[[:cntrl:]]'::text)));

CREATE FUNCTION audit.actor() RETURNS text
    LANGUAGE sql STABLE
    RETURN COALESCE(NULLIF(current_setting('noria.actor'::text, true), ''::text), (SESSION_USER)::text);

CREATE FUNCTION audit.append(action text, subject text, detail jsonb) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
    fresh audit.event;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('audit.event', 0));
    SELECT coalesce(max(e.seq), 0) + 1 INTO fresh.seq FROM audit.event e;
    SELECT e.hash INTO fresh.previous FROM audit.event e WHERE e.seq = fresh.seq - 1;
    fresh.previous := coalesce(fresh.previous, sha256(''));
    fresh.at := clock_timestamp();
    fresh.actor := audit.actor();
    fresh.action := append.action;
    fresh.subject := append.subject;
    fresh.detail := append.detail;
    fresh.hash := audit.event_hash(fresh);
    INSERT INTO audit.event VALUES (fresh.*);
    RETURN fresh.seq;
END $$;

CREATE TABLE audit.event (
    seq bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    subject text NOT NULL,
    detail jsonb NOT NULL,
    previous bytea NOT NULL,
    hash bytea NOT NULL,
    CONSTRAINT event_hash_check CHECK ((octet_length(hash) = 32)),
    CONSTRAINT event_previous_check CHECK ((octet_length(previous) = 32))
);

CREATE FUNCTION audit.event_hash(event audit.event) RETURNS bytea
    LANGUAGE sql STABLE
    RETURN sha256(((event).previous || convert_to((jsonb_build_array((event).seq, to_char(((event).at AT TIME ZONE 'UTC'::text), 'YYYY-MM-DD"T"HH24:MI:SS.US'::text), (event).actor, (event).action, (event).subject, (event).detail))::text, 'UTF8'::name)));

CREATE FUNCTION audit.refuse_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION '%.% is append-only: % refused', TG_TABLE_SCHEMA, TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'NR004';
END $$;

CREATE FUNCTION audit.verify() RETURNS TABLE(seq bigint, problem text)
    LANGUAGE sql STABLE
    AS $$
    WITH chain AS (
        SELECT e AS event, e.seq, e.hash, e.previous,
               lag(e.hash, 1, sha256('')) OVER (ORDER BY e.seq) AS hash_before,
               lag(e.seq, 1, 0::bigint) OVER (ORDER BY e.seq) AS seq_before
        FROM audit.event e
    )
    SELECT c.seq, p.problem
    FROM chain c
    CROSS JOIN LATERAL (VALUES
        (c.seq <> c.seq_before + 1, 'an event before this one is missing'),
        (c.previous <> c.hash_before, 'the chain to the event before is broken'),
        (c.hash <> audit.event_hash(c.event), 'the content is not what was written')
    ) AS p (found, problem)
    WHERE p.found
    ORDER BY c.seq, p.problem
$$;

CREATE FUNCTION obs.audit_consent() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM audit.append('consent.' || NEW.action, NEW.tenant,
        jsonb_build_object('consent_id', NEW.id, 'user_key', NEW.user_key));
    RETURN NULL;
END $$;

CREATE FUNCTION obs.canonical(value jsonb) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
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

CREATE FUNCTION obs.eligibility_at(as_of timestamp with time zone) RETURNS TABLE(id uuid, tenant text, is_traffic boolean, is_finished boolean, has_content boolean, is_clean boolean, has_consent boolean, is_eligible boolean)
    LANGUAGE sql STABLE
    AS $$
    WITH word AS (
        SELECT DISTINCT ON (k.tenant, k.user_key) k.tenant, k.user_key, k.action
        FROM obs.consent k
        WHERE k.at <= as_of
        ORDER BY k.tenant, k.user_key, k.at DESC, k.id DESC
    ), judged AS (
        SELECT r.id, r.tenant,
               r.source = 'traffic' AS is_traffic,
               r.finish_reason IN ('stop', 'length') AS is_finished,
               c.id IS NOT NULL AND c.completion <> '' AS has_content,
               coalesce(c.pii_flags = '{}', false) AS is_clean,
               coalesce(t.action <> 'withdrawn', true)
                   AND coalesce(u.action, t.action, 'none') = 'granted' AS has_consent
        FROM obs.request r
        LEFT JOIN obs.content c ON c.id = r.id
        LEFT JOIN word t ON t.tenant = r.tenant AND t.user_key IS NULL
        LEFT JOIN word u ON u.tenant = r.tenant AND u.user_key = r.user_key
        WHERE r.recorded_at <= as_of
    )
    SELECT j.*, j.is_traffic AND j.is_finished AND j.has_content AND j.is_clean AND j.has_consent
    FROM judged j
$$;

CREATE FUNCTION obs.enter_as_writer() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(obs.writers_lock());
    RETURN NULL;
END $$;

CREATE FUNCTION obs.inference_log_at(as_of timestamp with time zone) RETURNS TABLE(id uuid, created_at timestamp with time zone, tenant text, endpoint text, requested_model text, base_model text, base_digest text, adapter_id text, adapter_digest text, assigned_adapter_id text, variant text, bucket integer, experiment text, user_key text, parent_id uuid, api text, source text, messages jsonb, prompt_hash text, completion text, pii_flags text[], embedding public.halfvec, fb_explicit smallint, fb_regen boolean, fb_edited text, fb_comment text, finish_reason text, error text, prompt_tokens integer, cached_tokens integer, completion_tokens integer, queue_ms double precision, ttft_ms double precision, duration_ms double precision, sampling jsonb, stream boolean)
    LANGUAGE sql STABLE
    AS $$
    SELECT r.id, r.started_at, r.tenant, r.endpoint, r.requested_model, r.base_model,
           r.base_digest, r.adapter_id, r.adapter_digest, r.assigned_adapter_id, r.variant,
           r.bucket, r.experiment, r.user_key, r.parent_id, r.api, r.source,
           c.messages, c.prompt_hash, c.completion, c.pii_flags, e.embedding,
           f.thumb,
           coalesce(f.regenerated, false) OR EXISTS (
               SELECT FROM obs.request child
               WHERE child.parent_id = r.id AND child.tenant = r.tenant AND child.source = 'traffic'
                 AND child.recorded_at <= as_of),
           f.edited, f.comment,
           r.finish_reason, r.error, r.prompt_tokens, r.cached_tokens,
           r.completion_tokens, r.queue_ms, r.ttft_ms,
           r.duration_ms, r.sampling, r.stream
    FROM obs.request r
    LEFT JOIN obs.content c ON c.id = r.id
    LEFT JOIN obs.embedding e ON e.id = r.id
    LEFT JOIN LATERAL (
        SELECT (array_agg(f.value ORDER BY f.at DESC, f.id DESC) FILTER (WHERE f.kind = 'thumbs'))[1] AS thumb,
               (array_agg(f.text ORDER BY f.at DESC, f.id DESC) FILTER (WHERE f.kind = 'edit'))[1] AS edited,
               (array_agg(f.text ORDER BY f.at DESC, f.id DESC) FILTER (WHERE f.kind = 'comment'))[1] AS comment,
               bool_or(f.kind = 'regenerate') AS regenerated
        FROM obs.feedback f
        WHERE f.request_id = r.id AND f.tenant = r.tenant AND f.recorded_at <= as_of
    ) f ON true
    WHERE r.recorded_at <= as_of
$$;

CREATE FUNCTION obs.json_hash(value jsonb) RETURNS bytea
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
BEGIN
    RETURN sha256(convert_to(obs.canonical(value), 'UTF8'));
END $$;

CREATE FUNCTION obs.make_week(parent text, week timestamp with time zone) RETURNS text
    LANGUAGE plpgsql
    AS $_$
DECLARE
    name text := parent || '_' || to_char(week AT TIME ZONE 'UTC', 'IYYY"w"IW');
    low uuid := obs.uuid_floor(week);
    high uuid := obs.uuid_floor(week + interval '7 days');
    columns text;
BEGIN
    IF to_regclass(format('obs.%I', name)) IS NOT NULL THEN
        RETURN NULL;
    END IF;
    SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) INTO columns
    FROM pg_attribute a
    WHERE a.attrelid = format('obs.%I', parent)::regclass AND a.attnum > 0
      AND NOT a.attisdropped AND a.attgenerated = '';
    EXECUTE format('CREATE TABLE obs.%I (LIKE obs.%I INCLUDING ALL)', name, parent);
    EXECUTE format('REVOKE ALL ON obs.%I FROM PUBLIC', name);
    EXECUTE format('WITH moved AS (DELETE FROM obs.%1$I WHERE id >= $1 AND id < $2 RETURNING %3$s)
                    INSERT INTO obs.%2$I (%3$s) SELECT %3$s FROM moved', parent || '_default', name, columns)
        USING low, high;
    EXECUTE format('ALTER TABLE obs.%I ATTACH PARTITION obs.%I FOR VALUES FROM (%L) TO (%L)',
                   parent, name, low, high);
    RETURN name;
END $_$;

CREATE FUNCTION obs.missing_weeks(weeks_ahead integer) RETURNS TABLE(parent text, week timestamp with time zone)
    LANGUAGE sql STABLE
    AS $$
    WITH wanted AS (
        SELECT p.parent, date_trunc('week', now(), 'UTC') + w * interval '7 days' AS week
        FROM unnest(ARRAY['request', 'content', 'embedding']) AS p (parent)
        CROSS JOIN generate_series(-1, weeks_ahead) AS w
        UNION
        SELECT s.parent, date_trunc('week', obs.uuid_time(s.id), 'UTC')
        FROM (SELECT 'request' AS parent, id FROM obs.request_default
              UNION ALL SELECT 'content', id FROM obs.content_default
              UNION ALL SELECT 'embedding', id FROM obs.embedding_default) s
        WHERE uuid_extract_version(s.id) = 7
          AND s.id BETWEEN obs.uuid_floor(now() - interval '1 year') AND obs.uuid_floor(now() + interval '7 days')
    )
    SELECT w.parent, w.week
    FROM wanted w
    WHERE NOT EXISTS (SELECT FROM obs.partition p WHERE p.parent = w.parent AND p.starts_at = w.week)
    ORDER BY w.week, w.parent
$$;

CREATE TABLE obs.feedback (
    id uuid DEFAULT uuidv7() NOT NULL,
    tenant text NOT NULL,
    request_id uuid NOT NULL,
    kind text NOT NULL,
    value smallint,
    text text,
    actor text NOT NULL,
    idempotency_key text,
    at timestamp with time zone DEFAULT now() NOT NULL,
    recorded_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT feedback_kind_check CHECK ((kind = ANY (ARRAY['thumbs'::text, 'regenerate'::text, 'edit'::text, 'comment'::text]))),
    CONSTRAINT value_fits_kind CHECK (
CASE kind
    WHEN 'thumbs'::text THEN ((value IS NOT NULL) AND (value = ANY (ARRAY['-1'::integer, 1])))
    WHEN 'regenerate'::text THEN (value IS NULL)
    ELSE ((value IS NULL) AND (text IS NOT NULL) AND (text <> ''::text))
END)
);

CREATE FUNCTION obs.orphan_feedback(grace interval) RETURNS SETOF obs.feedback
    LANGUAGE sql STABLE
    AS $$
    SELECT f.*
    FROM obs.feedback f
    WHERE f.recorded_at < clock_timestamp() - grace
      AND NOT EXISTS (SELECT FROM obs.request r WHERE r.id = f.request_id AND r.tenant = f.tenant)
    ORDER BY f.at, f.id
$$;

CREATE FUNCTION obs.prompt_hash(messages jsonb) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
BEGIN
    RETURN encode(obs.json_hash(messages), 'hex');
END $$;

CREATE FUNCTION obs.provenance(wanted_request uuid) RETURNS TABLE(request_id uuid, adapter_id text, adapter_digest text, run_id uuid, snapshot_id uuid, set_hash text, ordinal integer, source_request_id uuid, origin text, label boolean)
    LANGUAGE sql STABLE
    AS $$
    SELECT r.id, r.adapter_id, r.adapter_digest, run.id, s.id, s.set_hash,
           w.ordinal, w.request_id, w.origin, w.label
    FROM obs.request r
    LEFT JOIN train.run run ON run.adapter_digest = r.adapter_digest AND run.status = 'finished'
    LEFT JOIN train.snapshot s ON s.id = run.snapshot_id
    LEFT JOIN train.snapshot_row w ON w.snapshot_id = s.id
    WHERE r.id = wanted_request
    ORDER BY run.finished_at DESC, w.ordinal
$$;

CREATE FUNCTION obs.taught_by(wanted_request uuid) RETURNS TABLE(adapter_id text, adapter_digest text, run_id uuid, snapshot_id uuid, status text)
    LANGUAGE sql STABLE
    AS $$
    SELECT DISTINCT run.adapter_id::text, run.adapter_digest, run.id, w.snapshot_id, a.status
    FROM train.snapshot_row w
    JOIN train.run run ON run.snapshot_id = w.snapshot_id AND run.status = 'finished'
    LEFT JOIN serve.adapter a ON a.digest = run.adapter_digest AND a.id = run.adapter_id
    WHERE w.request_id = wanted_request
    ORDER BY 1, 3
$$;

CREATE FUNCTION obs.uuid_floor(at timestamp with time zone) RETURNS uuid
    LANGUAGE sql IMMUTABLE STRICT
    RETURN ((lpad(to_hex((floor((EXTRACT(epoch FROM at) * (1000)::numeric)))::bigint), 12, '0'::text) || repeat('0'::text, 20)))::uuid;

CREATE FUNCTION obs.uuid_time(id uuid) RETURNS timestamp with time zone
    LANGUAGE sql IMMUTABLE STRICT
    RETURN to_timestamp((((((('x'::text || "left"(replace((id)::text, '-'::text, ''::text), 12)))::bit(48))::bigint)::numeric / 1000.0))::double precision);

CREATE FUNCTION obs.writers_lock() RETURNS bigint
    LANGUAGE sql IMMUTABLE
    RETURN hashtextextended('obs.writers'::text, (0)::bigint);

CREATE FUNCTION serve.assign(wanted_endpoint text, key text) RETURNS TABLE(adapter_id text, variant text, bucket integer)
    LANGUAGE sql STABLE
    AS $$
    SELECT coalesce(canary.id, prod.id)::text,
           CASE WHEN canary.id IS NOT NULL THEN 'canary' WHEN prod.id IS NOT NULL THEN 'prod' ELSE 'base' END,
           b.bucket
    FROM serve.endpoint e
    CROSS JOIN LATERAL (SELECT serve.bucket(e.name, e.experiment, key) AS bucket) b
    LEFT JOIN serve.adapter prod ON prod.endpoint = e.name AND prod.status = 'prod'
    LEFT JOIN serve.adapter canary ON canary.endpoint = e.name AND canary.status = 'canary'
        AND b.bucket >= canary.canary_start AND b.bucket < canary.canary_start + canary.traffic_pct * 100
    WHERE e.name = wanted_endpoint
$$;

CREATE FUNCTION serve.audit_anchor() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM audit.append('gate.anchor', NEW.name, jsonb_build_object('from', OLD.anchor, 'to', NEW.anchor));
    RETURN NULL;
END $$;

CREATE FUNCTION serve.bucket(endpoint text, experiment text, key text) RETURNS integer
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN ((((('x'::text || "left"(encode(sha256(convert_to(((((endpoint || chr(31)) || experiment) || chr(31)) || key), 'UTF8'::name)), 'hex'::text), 15)))::bit(60))::bigint % (10000)::bigint))::integer;

CREATE FUNCTION serve.bump_epoch(adapter text DEFAULT NULL::text) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    fresh bigint;
BEGIN
    UPDATE serve.registry_epoch SET epoch = epoch + 1 RETURNING epoch INTO fresh;
    INSERT INTO serve.registry_change (epoch, adapter_id) VALUES (fresh, adapter);
    DELETE FROM serve.registry_change c WHERE c.epoch <= fresh - 10000;
    PERFORM pg_notify('noria_registry', fresh::text);
END $$;

CREATE FUNCTION serve.bump_epoch_after() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM serve.bump_epoch();
    RETURN NULL;
END $$;

CREATE FUNCTION serve.can_promote(candidate text, current text DEFAULT NULL::text) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    SELECT NOT EXISTS (SELECT FROM serve.promotion_blockers(candidate, current))
$$;

CREATE FUNCTION serve.canary_figures(wanted_adapter text) RETURNS TABLE(arm text, adapter_id text, configured_pct double precision, since timestamp with time zone, users bigint, requests bigint, rated bigint, raters bigint, up_rate double precision, variance double precision, rating_rate double precision, regenerate_rate double precision, error_rate double precision)
    LANGUAGE sql STABLE
    AS $$
    WITH test AS (
        SELECT a.id, a.endpoint, e.experiment, a.traffic_pct,
               (SELECT max(v.at) FROM serve.adapter_event v WHERE v.adapter_id = a.id AND v.kind = 'status'
                                                              AND v.to_status = 'canary') AS since
        FROM serve.adapter a
        JOIN serve.endpoint e ON e.name = a.endpoint
        WHERE a.id = wanted_adapter AND a.status = 'canary'
    ), arms AS (
        SELECT 'candidate' AS arm, t.id::text AS adapter_id, t.traffic_pct AS pct FROM test t
        UNION ALL
        SELECT 'control', (SELECT p.id::text FROM serve.adapter p WHERE p.endpoint = t.endpoint AND p.status = 'prod'),
               100 - (SELECT sum(c.traffic_pct) FROM serve.adapter c WHERE c.endpoint = t.endpoint AND c.status = 'canary')
        FROM test t
    ), dealt AS (
        SELECT s.arm, l.user_key, l.fb_explicit, l.fb_regen, l.finish_reason
        FROM test t
        JOIN obs.inference_log l ON l.endpoint = t.endpoint AND l.experiment = t.experiment
            AND l.created_at >= t.since AND l.source = 'traffic' AND l.variant <> 'direct'
        JOIN arms s ON s.adapter_id IS NOT DISTINCT FROM l.assigned_adapter_id
    ), per_user AS (
        SELECT d.arm, d.user_key, count(*) AS requests, count(d.fb_explicit) AS rated,
               avg((d.fb_explicit + 1) / 2.0)::double precision AS score,
               count(*) FILTER (WHERE d.fb_regen) AS regenerated,
               count(*) FILTER (WHERE d.finish_reason IN ('error', 'interrupted')) AS failed
        FROM dealt d
        GROUP BY d.arm, d.user_key
    )
    SELECT s.arm, s.adapter_id, s.pct::double precision, (SELECT t.since FROM test t),
           count(u.user_key), coalesce(sum(u.requests), 0)::bigint, coalesce(sum(u.rated), 0)::bigint,
           count(u.score), avg(u.score), var_samp(u.score),
           (sum(u.rated) / nullif(sum(u.requests), 0))::double precision,
           (sum(u.regenerated) / nullif(sum(u.requests), 0))::double precision,
           (sum(u.failed) / nullif(sum(u.requests), 0))::double precision
    FROM arms s
    LEFT JOIN per_user u ON u.arm = s.arm
    GROUP BY s.arm, s.adapter_id, s.pct
    ORDER BY s.arm
$$;

CREATE FUNCTION serve.canary_ratio_p(wanted_adapter text) RETURNS double precision
    LANGUAGE sql STABLE
    AS $$
    WITH test AS (
        SELECT a.id, a.endpoint, e.experiment, a.traffic_pct::double precision AS pct,
               100 - (SELECT sum(c.traffic_pct) FROM serve.adapter c
                      WHERE c.endpoint = a.endpoint AND c.status = 'canary')::double precision AS control_pct,
               (SELECT p.id FROM serve.adapter p WHERE p.endpoint = a.endpoint AND p.status = 'prod') AS control,
               (SELECT max(v.at) FROM serve.adapter_event v WHERE v.endpoint = a.endpoint AND v.kind IN ('status', 'traffic')) AS since
        FROM serve.adapter a
        JOIN serve.endpoint e ON e.name = a.endpoint
        WHERE a.id = wanted_adapter AND a.status = 'canary'
    ), seen AS (
        SELECT count(DISTINCT r.user_key) FILTER (WHERE r.assigned_adapter_id = t.id) AS candidate,
               count(DISTINCT r.user_key) FILTER (WHERE r.assigned_adapter_id IS NOT DISTINCT FROM t.control) AS control
        FROM test t
        JOIN obs.request r ON r.endpoint = t.endpoint AND r.experiment = t.experiment
            AND r.started_at >= t.since AND r.source = 'traffic' AND r.variant <> 'direct'
    )
    SELECT CASE
        WHEN s.candidate + s.control = 0 THEN NULL
        WHEN t.pct = 0 THEN CASE WHEN s.candidate > 0 THEN 0 ELSE NULL END
        WHEN t.control_pct = 0 THEN CASE WHEN s.control > 0 THEN 0 ELSE NULL END
        ELSE erfc(sqrt((
            power(s.candidate - (s.candidate + s.control) * t.pct / (t.pct + t.control_pct), 2)
                / ((s.candidate + s.control) * t.pct / (t.pct + t.control_pct))
            + power(s.control - (s.candidate + s.control) * t.control_pct / (t.pct + t.control_pct), 2)
                / ((s.candidate + s.control) * t.control_pct / (t.pct + t.control_pct))
            ) / 2)) END
    FROM test t, seen s
$$;

CREATE TABLE serve.adapter (
    id serve.label NOT NULL,
    digest text NOT NULL,
    base_model serve.label NOT NULL,
    endpoint serve.label,
    status text DEFAULT 'candidate'::text NOT NULL,
    traffic_pct numeric(5,2) DEFAULT 0 NOT NULL,
    canary_start integer,
    loaded boolean DEFAULT true NOT NULL,
    pinned boolean DEFAULT false NOT NULL,
    store_uri text NOT NULL,
    config jsonb NOT NULL,
    bytes bigint NOT NULL,
    parent serve.label,
    replaced serve.label,
    run_id uuid,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT adapter_bytes_check CHECK ((bytes >= 0)),
    CONSTRAINT adapter_canary_start_check CHECK (((canary_start >= 0) AND (canary_start <= 9999))),
    CONSTRAINT adapter_digest_check CHECK ((digest <> ALL (ARRAY[''::text, 'base'::text]))),
    CONSTRAINT adapter_status_check CHECK ((status = ANY (ARRAY['candidate'::text, 'canary'::text, 'prod'::text, 'retired'::text, 'rejected'::text]))),
    CONSTRAINT adapter_traffic_pct_check CHECK (((traffic_pct >= (0)::numeric) AND (traffic_pct <= (100)::numeric))),
    CONSTRAINT only_endpoints_have_status CHECK (((endpoint IS NOT NULL) OR (status = 'candidate'::text))),
    CONSTRAINT share_follows_status CHECK (
CASE status
    WHEN 'canary'::text THEN (canary_start IS NOT NULL)
    WHEN 'prod'::text THEN ((traffic_pct = (100)::numeric) AND (canary_start IS NULL))
    ELSE ((traffic_pct = (0)::numeric) AND (canary_start IS NULL))
END)
);

CREATE FUNCTION serve.change_status(was serve.adapter, becomes serve.adapter) RETURNS serve.adapter
    LANGUAGE plpgsql
    AS $$
DECLARE
    is_rollback boolean;
    blockers jsonb;
    reason text := coalesce(serve.local_setting('noria.override_reason'), serve.local_setting('noria.reason'));
    old_prod text;
BEGIN
    -- Whoever changes statuses of one endpoint takes turns from here to the end of the transaction.
    PERFORM FROM serve.endpoint e WHERE e.name = becomes.endpoint FOR NO KEY UPDATE;
    IF becomes.status <> was.status AND NOT serve.may_follow(was.status, becomes.status) THEN
        RAISE EXCEPTION 'adapter % can not go from % to %', was.id, was.status, becomes.status
            USING ERRCODE = 'NR001';
    END IF;
    IF becomes.status = 'prod' THEN
        is_rollback := was.status = 'retired' AND serve.was_prod(was.id);
        IF is_rollback THEN
            reason := coalesce(reason, 'rollback');
        ELSE
            blockers := serve.pass_gate(becomes);
        END IF;
        SELECT a.id INTO old_prod FROM serve.adapter a
        WHERE a.endpoint = becomes.endpoint AND a.status = 'prod' AND a.id <> becomes.id;
        UPDATE serve.adapter SET status = 'retired' WHERE id = old_prod;
        IF NOT is_rollback THEN
            becomes.replaced := old_prod;
        END IF;
        becomes.traffic_pct := 100;
        becomes.canary_start := NULL;
    ELSIF becomes.status = 'canary' THEN
        becomes.canary_start := serve.place_canary(was, becomes);
    ELSE
        becomes.traffic_pct := 0;
        becomes.canary_start := NULL;
    END IF;
    PERFORM serve.record_event(
        was, becomes, CASE WHEN was.status = becomes.status THEN 'traffic' ELSE 'status' END, reason, blockers);
    RETURN becomes;
END $$;

CREATE FUNCTION serve.check_pin(was serve.adapter, becomes serve.adapter) RETURNS serve.adapter
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF becomes.pinned AND NOT (becomes.loaded OR becomes.status IN ('canary', 'prod')) THEN
        IF NOT was.pinned THEN
            RAISE EXCEPTION 'adapter % is not served, so it can not be pinned', was.id USING ERRCODE = 'NR001';
        END IF;
        becomes.pinned := false;
    END IF;
    IF becomes.pinned <> was.pinned THEN
        PERFORM serve.record_event(was, becomes, CASE WHEN becomes.pinned THEN 'pinned' ELSE 'unpinned' END,
                                   serve.local_setting('noria.reason'));
    END IF;
    RETURN becomes;
END $$;

CREATE FUNCTION serve.free_start(wanted_endpoint text, newcomer text, width integer) RETURNS integer
    LANGUAGE sql STABLE
    AS $$
    WITH taken AS (
        SELECT a.canary_start AS low, a.canary_start + (a.traffic_pct * 100)::integer AS high
        FROM serve.adapter a
        WHERE a.endpoint = wanted_endpoint AND a.status = 'canary' AND a.id <> newcomer
    ), edge AS (
        SELECT low, high FROM taken UNION ALL SELECT 0, 0 UNION ALL SELECT 10000, 10000
    ), gap AS (
        SELECT high AS low, lead(low) OVER (ORDER BY low, high) AS high FROM edge
    )
    SELECT CASE WHEN NOT EXISTS (SELECT FROM taken) THEN 0
                WHEN (low + high) / 2 + width <= high THEN (low + high) / 2
                ELSE high - width END
    FROM gap
    WHERE high - low >= greatest(width, 1)
    ORDER BY high - low DESC, low
    LIMIT 1
$$;

CREATE FUNCTION serve.greet_adapter() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
DECLARE
    nobody serve.adapter;
BEGIN
    IF NEW.status <> 'candidate' THEN
        RAISE EXCEPTION 'adapter % must begin as candidate, not as %', NEW.id, NEW.status
            USING ERRCODE = 'NR001';
    END IF;
    PERFORM serve.record_event(nobody, NEW, 'registered', serve.local_setting('noria.reason'));
    IF NEW.pinned THEN
        PERFORM serve.record_event(NEW, NEW, 'pinned', serve.local_setting('noria.reason'));
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION serve.guard_adapter() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM serve.refuse_rewrite(OLD, NEW);
    IF (NEW.digest, NEW.store_uri, NEW.config, NEW.bytes)
           IS DISTINCT FROM (OLD.digest, OLD.store_uri, OLD.config, OLD.bytes) THEN
        PERFORM serve.record_event(OLD, NEW, 'replaced', serve.local_setting('noria.reason'));
    END IF;
    IF NEW.loaded <> OLD.loaded THEN
        PERFORM serve.record_event(OLD, NEW, CASE WHEN NEW.loaded THEN 'loaded' ELSE 'unloaded' END,
                                   serve.local_setting('noria.reason'));
    END IF;
    IF NEW.status = OLD.status AND NEW.traffic_pct = OLD.traffic_pct THEN
        NEW.canary_start := OLD.canary_start;
    ELSIF NEW.endpoint IS NOT NULL
        AND NEW.status IN ('candidate', 'canary', 'prod', 'retired', 'rejected')
        AND NEW.traffic_pct BETWEEN 0 AND 100
        AND (NEW.status = 'canary' OR NEW.status <> OLD.status) THEN
        NEW := serve.change_status(OLD, NEW);
    END IF;
    NEW := serve.check_pin(OLD, NEW);
    RETURN NEW;  -- what fell through is for the constraints of the table to refuse
END $$;

CREATE FUNCTION serve.local_setting(name text) RETURNS text
    LANGUAGE sql STABLE
    RETURN NULLIF(current_setting(name, true), ''::text);

CREATE FUNCTION serve.may_follow(was text, becomes text) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    RETURN (((((((((((was = 'candidate'::text) AND (becomes = 'canary'::text)) OR ((was = 'candidate'::text) AND (becomes = 'prod'::text))) OR ((was = 'candidate'::text) AND (becomes = 'rejected'::text))) OR ((was = 'canary'::text) AND (becomes = 'prod'::text))) OR ((was = 'canary'::text) AND (becomes = 'candidate'::text))) OR ((was = 'canary'::text) AND (becomes = 'retired'::text))) OR ((was = 'canary'::text) AND (becomes = 'rejected'::text))) OR ((was = 'prod'::text) AND (becomes = 'retired'::text))) OR ((was = 'retired'::text) AND (becomes = 'prod'::text))) OR ((was = 'retired'::text) AND (becomes = 'canary'::text)));

CREATE FUNCTION serve.pass_gate(becomes serve.adapter) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
DECLARE
    reasons text;
    found jsonb;
BEGIN
    SELECT string_agg(concat_ws(' ', b.reason, b.suite || '/' || b.metric), ', '), jsonb_agg(to_jsonb(b))
    INTO reasons, found
    FROM serve.promotion_blockers(becomes.id) b;
    IF found IS NOT NULL AND serve.local_setting('noria.override_reason') IS NULL THEN
        RAISE EXCEPTION 'adapter % may not be promoted: %', becomes.id, reasons
            USING ERRCODE = 'NR002',
                  HINT = 'SELECT * FROM serve.promotion_blockers(...) tells more; '
                         'SET LOCAL noria.override_reason = ''...'' promotes all the same.';
    END IF;
    RETURN found;
END $$;

CREATE FUNCTION serve.place_canary(was serve.adapter, becomes serve.adapter) RETURNS integer
    LANGUAGE plpgsql
    AS $$
DECLARE
    width integer := (becomes.traffic_pct * 100)::integer;
    begins integer := was.canary_start;
    room integer;
BEGIN
    IF begins IS NULL THEN
        begins := serve.free_start(becomes.endpoint, becomes.id, width);
        IF begins IS NULL THEN
            RAISE EXCEPTION 'no room for a canary of % %% on endpoint %: its other canaries hold the rest',
                becomes.traffic_pct, becomes.endpoint USING ERRCODE = 'NR005';
        END IF;
        IF NOT EXISTS (SELECT FROM serve.adapter a WHERE a.endpoint = becomes.endpoint
                       AND a.status = 'canary' AND a.id <> becomes.id) THEN
            -- A new round: users are dealt anew, so the last round's candidates do not get the same ones.
            UPDATE serve.endpoint SET experiment = becomes.id
            WHERE name = becomes.endpoint AND experiment <> becomes.id;
        END IF;
    END IF;
    SELECT coalesce(min(a.canary_start), 10000) - begins INTO room
    FROM serve.adapter a
    WHERE a.endpoint = becomes.endpoint AND a.status = 'canary' AND a.id <> becomes.id
      AND a.canary_start >= begins;
    IF width > room THEN
        RAISE EXCEPTION 'a canary of % %% does not fit on endpoint %: at most % %% is free after bucket %',
            becomes.traffic_pct, becomes.endpoint, room / 100.0, begins USING ERRCODE = 'NR005';
    END IF;
    RETURN begins;
END $$;

CREATE FUNCTION serve.promote(adapter text) RETURNS void
    LANGUAGE sql
    AS $$
    SELECT serve.set_status(adapter, 'prod')
$$;

CREATE FUNCTION serve.promotion_blockers(candidate text, current text DEFAULT NULL::text) RETURNS TABLE(reason text, suite text, metric text, candidate_value double precision, current_value double precision, limit_value double precision, detail text)
    LANGUAGE plpgsql STABLE
    AS $$
#variable_conflict use_column
DECLARE
    new_one serve.adapter;
    old_one serve.adapter;
    place serve.endpoint;
    base text;
    anchor_digest text;
BEGIN
    SELECT * INTO new_one FROM serve.adapter a WHERE a.id = promotion_blockers.candidate;
    IF new_one.id IS NULL THEN
        reason := 'unknown_candidate';
        detail := format('no adapter has the id %L', promotion_blockers.candidate);
        RETURN NEXT;
        RETURN;
    END IF;
    IF new_one.endpoint IS NULL THEN
        reason := 'no_endpoint';
        detail := format('adapter %s serves no endpoint', new_one.id);
        RETURN NEXT;
        RETURN;
    END IF;
    IF promotion_blockers.current IS NOT NULL THEN
        SELECT * INTO old_one FROM serve.adapter a
        WHERE a.id = promotion_blockers.current AND a.endpoint = new_one.endpoint;
        IF old_one.id IS NULL THEN
            reason := 'unknown_current';
            detail := format('no adapter of endpoint %s has the id %L', new_one.endpoint, promotion_blockers.current);
            RETURN NEXT;
            RETURN;
        END IF;
    ELSE
        SELECT * INTO old_one FROM serve.adapter a WHERE a.endpoint = new_one.endpoint AND a.status = 'prod';
    END IF;
    SELECT * INTO place FROM serve.endpoint e WHERE e.name = new_one.endpoint;
    SELECT b.digest INTO base FROM serve.base_model b WHERE b.name = new_one.base_model;
    SELECT a.digest INTO anchor_digest FROM serve.adapter a WHERE a.id = place.anchor;
    IF NOT EXISTS (SELECT FROM train.rules_for(place.name) m WHERE m.required) THEN
        reason := 'no_metrics';
        detail := format('no required metric is registered for endpoint %s', place.name);
        RETURN NEXT;
    END IF;
    RETURN QUERY SELECT * FROM train.figure_blockers(
        place.name, base, new_one.digest, coalesce(old_one.digest, 'base'), anchor_digest);
END $$;

CREATE FUNCTION serve.record_event(was serve.adapter, becomes serve.adapter, kind text, reason text, blockers jsonb DEFAULT NULL::jsonb) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO serve.adapter_event
        (adapter_id, endpoint, kind, from_status, to_status, from_digest, to_digest, traffic_pct, actor, reason)
    VALUES (becomes.id, becomes.endpoint, record_event.kind, was.status, becomes.status, was.digest,
            becomes.digest, becomes.traffic_pct, audit.actor(), record_event.reason);
    PERFORM audit.append('adapter.' || record_event.kind, becomes.id, jsonb_strip_nulls(jsonb_build_object(
        'endpoint', becomes.endpoint, 'from', was.status, 'to', becomes.status,
        'from_digest', was.digest, 'digest', becomes.digest, 'traffic_pct', becomes.traffic_pct,
        'reason', record_event.reason, 'overridden_blockers', record_event.blockers)));
    PERFORM serve.bump_epoch(becomes.id);
END $$;

CREATE FUNCTION serve.record_key() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM audit.append(CASE WHEN NEW.revoked_at IS NULL THEN 'key.created' ELSE 'key.revoked' END,
                         NEW.id::text, jsonb_build_object('tenant', NEW.tenant, 'role', NEW.role));
    RETURN NULL;
END $$;

CREATE FUNCTION serve.refuse_rewrite(was serve.adapter, becomes serve.adapter) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF (was.id, was.base_model, was.parent, was.run_id, was.created_at)
           IS DISTINCT FROM (becomes.id, becomes.base_model, becomes.parent, becomes.run_id, becomes.created_at)
       OR was.endpoint IS DISTINCT FROM becomes.endpoint
       OR (was.endpoint IS NOT NULL AND (was.digest, was.store_uri, was.config, was.bytes)
           IS DISTINCT FROM (becomes.digest, becomes.store_uri, becomes.config, becomes.bytes)) THEN
        RAISE EXCEPTION 'adapter % can not be rewritten: register a new version instead', was.id
            USING ERRCODE = 'NR004';
    END IF;
END $$;

CREATE FUNCTION serve.rollback(wanted_endpoint text) RETURNS text
    LANGUAGE plpgsql
    AS $$
DECLARE
    bad serve.adapter;
    reason text := serve.local_setting('noria.reason');
BEGIN
    PERFORM FROM serve.endpoint e WHERE e.name = wanted_endpoint FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no endpoint has the name %', quote_literal(wanted_endpoint) USING ERRCODE = 'NR003';
    END IF;
    SELECT * INTO bad FROM serve.adapter a WHERE a.endpoint = wanted_endpoint AND a.status = 'prod';
    IF bad.id IS NULL THEN
        RAISE EXCEPTION 'endpoint % has no prod adapter to roll back from', wanted_endpoint
            USING ERRCODE = 'NR003';
    END IF;
    PERFORM set_config('noria.reason', coalesce(reason, 'rollback'), true);
    IF bad.replaced IS NULL THEN
        PERFORM serve.set_status(bad.id, 'retired');
    ELSE
        PERFORM serve.set_status(bad.replaced, 'prod');
    END IF;
    PERFORM set_config('noria.reason', coalesce(reason, ''), true);
    RETURN bad.replaced;
END $$;

CREATE FUNCTION serve.set_status(adapter text, wanted text, share numeric DEFAULT NULL::numeric) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    -- The endpoint first and the adapter after it: writers that meet here wait, they do not deadlock.
    PERFORM FROM serve.endpoint e
    WHERE e.name = (SELECT a.endpoint FROM serve.adapter a WHERE a.id = set_status.adapter) FOR NO KEY UPDATE;
    UPDATE serve.adapter a SET status = wanted, traffic_pct = coalesce(share, a.traffic_pct) WHERE a.id = set_status.adapter;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no adapter has the id %', quote_literal(adapter) USING ERRCODE = 'NR003';
    END IF;
END $$;

CREATE FUNCTION serve.start_canary(adapter text, pct numeric) RETURNS void
    LANGUAGE sql
    AS $$
    SELECT serve.set_status(adapter, 'canary', pct)
$$;

CREATE FUNCTION serve.stop_canary(adapter text) RETURNS void
    LANGUAGE sql
    AS $$
    SELECT serve.set_status(adapter, 'candidate')
$$;

CREATE FUNCTION serve.take_name() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION serve.was_prod(adapter text) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    SELECT EXISTS (SELECT FROM serve.adapter_event e
                   WHERE e.adapter_id = adapter AND e.kind = 'status' AND e.to_status = 'prod')
$$;

CREATE FUNCTION train.audit_rule() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF NEW IS DISTINCT FROM OLD THEN
        PERFORM audit.append('gate.rule', coalesce(NEW.suite, OLD.suite) || '/' || coalesce(NEW.metric, OLD.metric),
                             jsonb_build_object('from', to_jsonb(OLD), 'to', to_jsonb(NEW)));
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION train.figure_blockers(wanted_endpoint text, wanted_base text, candidate_subject text, current_subject text, anchor_subject text) RETURNS TABLE(reason text, suite text, metric text, candidate_value double precision, current_value double precision, limit_value double precision, detail text)
    LANGUAGE sql STABLE
    AS $$
    SELECT v.reason, m.suite, m.metric, c.value, p.value, v.limit_value, v.detail
    FROM train.rules_for(wanted_endpoint) m
    LEFT JOIN train.newest_results(candidate_subject, wanted_base) c USING (suite, metric)
    LEFT JOIN train.newest_results(current_subject, wanted_base) p USING (suite, metric)
    LEFT JOIN train.newest_results(anchor_subject, wanted_base) a USING (suite, metric)
    LEFT JOIN LATERAL (SELECT s.suite_hash FROM train.eval_suite s WHERE s.name = m.suite
                       ORDER BY s.registered_at DESC LIMIT 1) s ON true
    CROSS JOIN LATERAL (SELECT CASE m.direction WHEN 'higher' THEN c.low ELSE c.high END AS bound,
                               coalesce(m.anchor_tolerance, m.tolerance) AS anchor_tolerance) x
    CROSS JOIN LATERAL (VALUES
        (m.required AND c.id IS NULL, 'missing_candidate', NULL::double precision,
         'the candidate has no result for this metric'),
        (m.required AND p.id IS NULL, 'missing_current', NULL,
         'the current version has no result for this metric'),
        (m.required AND c.id IS NOT NULL AND c.value IS NULL, 'null_candidate', NULL,
         'the candidate''s result has no value'),
        (m.required AND p.id IS NOT NULL AND p.value IS NULL, 'null_current', NULL,
         'the current version''s result has no value'),
        (c.n < m.min_n, 'too_few_candidate', m.min_n,
         format('%s scored cases of the candidate, at least %s are wanted', c.n, m.min_n)),
        (p.n < m.min_n, 'too_few_current', m.min_n,
         format('%s scored cases of the current version, at least %s are wanted', p.n, m.min_n)),
        (c.unscored > m.max_unscored * (c.n + c.unscored), 'unscored', m.max_unscored,
         format('%s of %s cases could not be scored', c.unscored, c.n + c.unscored)),
        (c.suite_hash <> s.suite_hash OR (c.id IS NOT NULL AND s.suite_hash IS NULL), 'suite_outdated', NULL,
         'the candidate was not measured on the registered version of the suite'),
        (c.suite_hash <> p.suite_hash, 'suite_changed', NULL,
         'candidate and current version were measured on different versions of the suite'),
        (m.floor IS NOT NULL AND c.value IS NOT NULL AND x.bound IS NULL, 'no_bound', m.floor,
         'the candidate''s result has no confidence bound to hold against the floor'),
        (train.is_worse(m.direction, x.bound, m.floor, 0), 'floor', m.floor,
         format('the confidence bound %s misses the floor %s (%s is better)', x.bound, m.floor, m.direction)),
        (train.is_worse(m.direction, c.value, p.value, m.tolerance), 'worse_than_current', m.tolerance,
         format('%s against %s is worse by more than %s (%s is better)',
                c.value, p.value, m.tolerance, m.direction)),
        (m.required AND anchor_subject IS NOT NULL AND a.value IS NULL, 'missing_anchor', NULL,
         'the endpoint''s anchor has no value for this metric'),
        (c.suite_hash <> a.suite_hash, 'anchor_suite_changed', NULL,
         'candidate and anchor were measured on different versions of the suite'),
        (train.is_worse(m.direction, c.value, a.value, x.anchor_tolerance), 'worse_than_anchor', x.anchor_tolerance,
         format('%s against %s of the anchor is worse by more than %s (%s is better)',
                c.value, a.value, x.anchor_tolerance, m.direction))
    ) AS v (found, reason, limit_value, detail)
    WHERE v.found
    ORDER BY m.suite, m.metric, v.reason
$$;

CREATE FUNCTION train.is_worse(direction text, value double precision, reference double precision, tolerance double precision) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    RETURN (CASE direction WHEN 'higher'::text THEN (reference - value) ELSE (value - reference) END > (tolerance + (0.000000001)::double precision));

CREATE TABLE train.eval_result (
    id bigint NOT NULL,
    subject text NOT NULL,
    base_digest text NOT NULL,
    suite text NOT NULL,
    suite_hash text NOT NULL,
    metric text NOT NULL,
    attempt integer NOT NULL,
    value double precision,
    low double precision,
    high double precision,
    n integer NOT NULL,
    unscored integer NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT eval_result_attempt_check CHECK ((attempt > 0)),
    CONSTRAINT eval_result_check CHECK ((low <= high)),
    CONSTRAINT eval_result_high_check CHECK (((high > '-Infinity'::double precision) AND (high < 'Infinity'::double precision))),
    CONSTRAINT eval_result_low_check CHECK (((low > '-Infinity'::double precision) AND (low < 'Infinity'::double precision))),
    CONSTRAINT eval_result_n_check CHECK ((n >= 0)),
    CONSTRAINT eval_result_unscored_check CHECK ((unscored >= 0)),
    CONSTRAINT eval_result_value_check CHECK (((value > '-Infinity'::double precision) AND (value < 'Infinity'::double precision)))
);

CREATE FUNCTION train.newest_results(wanted_subject text, wanted_base text) RETURNS SETOF train.eval_result
    LANGUAGE sql STABLE
    AS $$
    SELECT r.*
    FROM train.eval_result r
    WHERE r.subject = wanted_subject AND r.base_digest = wanted_base
      AND r.attempt = (SELECT max(n.attempt) FROM train.eval_result n
                       WHERE n.subject = r.subject AND n.base_digest = r.base_digest AND n.suite = r.suite)
$$;

CREATE TABLE train.eval_metric (
    suite text NOT NULL,
    metric text NOT NULL,
    endpoint serve.label,
    direction text NOT NULL,
    floor double precision,
    tolerance double precision NOT NULL,
    anchor_tolerance double precision,
    min_n integer NOT NULL,
    max_unscored double precision NOT NULL,
    required boolean NOT NULL,
    CONSTRAINT eval_metric_anchor_tolerance_check CHECK (((anchor_tolerance >= (0)::double precision) AND (anchor_tolerance < 'Infinity'::double precision))),
    CONSTRAINT eval_metric_direction_check CHECK ((direction = ANY (ARRAY['higher'::text, 'lower'::text]))),
    CONSTRAINT eval_metric_floor_check CHECK (((floor > '-Infinity'::double precision) AND (floor < 'Infinity'::double precision))),
    CONSTRAINT eval_metric_max_unscored_check CHECK (((max_unscored >= (0)::double precision) AND (max_unscored <= (1)::double precision))),
    CONSTRAINT eval_metric_min_n_check CHECK ((min_n > 0)),
    CONSTRAINT eval_metric_tolerance_check CHECK (((tolerance >= (0)::double precision) AND (tolerance < 'Infinity'::double precision)))
);

CREATE FUNCTION train.rules_for(wanted_endpoint text) RETURNS SETOF train.eval_metric
    LANGUAGE sql STABLE
    AS $$
    SELECT DISTINCT ON (m.suite, m.metric) m.*
    FROM train.eval_metric m
    WHERE m.endpoint = wanted_endpoint OR m.endpoint IS NULL
    ORDER BY m.suite, m.metric, m.endpoint NULLS LAST
$$;

CREATE TABLE obs.consent (
    id uuid DEFAULT uuidv7() NOT NULL,
    tenant serve.label NOT NULL,
    user_key text,
    action text NOT NULL,
    actor text DEFAULT audit.actor() NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT consent_action_check CHECK ((action = ANY (ARRAY['granted'::text, 'withdrawn'::text])))
);

CREATE TABLE obs.content (
    id uuid NOT NULL,
    messages jsonb NOT NULL,
    completion text NOT NULL,
    pii_flags text[] DEFAULT '{}'::text[] NOT NULL,
    prompt_hash text GENERATED ALWAYS AS (obs.prompt_hash(messages)) STORED NOT NULL
)
PARTITION BY RANGE (id);

CREATE TABLE obs.content_default (
    id uuid CONSTRAINT content_id_not_null NOT NULL,
    messages jsonb CONSTRAINT content_messages_not_null NOT NULL,
    completion text CONSTRAINT content_completion_not_null NOT NULL,
    pii_flags text[] DEFAULT '{}'::text[] CONSTRAINT content_pii_flags_not_null NOT NULL,
    prompt_hash text GENERATED ALWAYS AS (obs.prompt_hash(messages)) STORED CONSTRAINT content_prompt_hash_not_null NOT NULL
);

CREATE TABLE obs.embedding (
    id uuid NOT NULL,
    model text NOT NULL,
    embedding public.halfvec NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT embedding_embedding_check CHECK ((public.l2_norm(embedding) > (0)::double precision))
)
PARTITION BY RANGE (id);

CREATE TABLE obs.embedding_default (
    id uuid CONSTRAINT embedding_id_not_null NOT NULL,
    model text CONSTRAINT embedding_model_not_null NOT NULL,
    embedding public.halfvec CONSTRAINT embedding_embedding_not_null NOT NULL,
    at timestamp with time zone DEFAULT now() CONSTRAINT embedding_at_not_null NOT NULL,
    CONSTRAINT embedding_embedding_check CHECK ((public.l2_norm(embedding) > (0)::double precision))
);

CREATE TABLE obs.request (
    id uuid DEFAULT uuidv7() NOT NULL,
    tenant text NOT NULL,
    endpoint text,
    requested_model text NOT NULL,
    base_model text NOT NULL,
    base_digest text NOT NULL,
    adapter_id text,
    adapter_digest text,
    assigned_adapter_id text,
    variant text NOT NULL,
    bucket integer,
    experiment text,
    user_key text NOT NULL,
    parent_id uuid,
    api text NOT NULL,
    started_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone NOT NULL,
    finish_reason text NOT NULL,
    error text,
    prompt_tokens integer NOT NULL,
    cached_tokens integer NOT NULL,
    completion_tokens integer NOT NULL,
    queue_ms double precision,
    ttft_ms double precision,
    duration_ms double precision NOT NULL,
    sampling jsonb NOT NULL,
    stream boolean NOT NULL,
    source text NOT NULL,
    recorded_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT request_api_check CHECK ((api = ANY (ARRAY['chat'::text, 'completions'::text, 'responses'::text, 'embeddings'::text, 'score'::text]))),
    CONSTRAINT request_bucket_check CHECK (((bucket >= 0) AND (bucket <= 9999))),
    CONSTRAINT request_cached_tokens_check CHECK ((cached_tokens >= 0)),
    CONSTRAINT request_completion_tokens_check CHECK ((completion_tokens >= 0)),
    CONSTRAINT request_finish_reason_check CHECK ((finish_reason = ANY (ARRAY['stop'::text, 'length'::text, 'abort'::text, 'error'::text, 'interrupted'::text]))),
    CONSTRAINT request_prompt_tokens_check CHECK ((prompt_tokens >= 0)),
    CONSTRAINT request_source_check CHECK ((source = ANY (ARRAY['traffic'::text, 'eval'::text]))),
    CONSTRAINT request_variant_check CHECK ((variant = ANY (ARRAY['prod'::text, 'canary'::text, 'base'::text, 'direct'::text])))
)
PARTITION BY RANGE (id);

CREATE TABLE obs.request_default (
    id uuid DEFAULT uuidv7() CONSTRAINT request_id_not_null NOT NULL,
    tenant text CONSTRAINT request_tenant_not_null NOT NULL,
    endpoint text,
    requested_model text CONSTRAINT request_requested_model_not_null NOT NULL,
    base_model text CONSTRAINT request_base_model_not_null NOT NULL,
    base_digest text CONSTRAINT request_base_digest_not_null NOT NULL,
    adapter_id text,
    adapter_digest text,
    assigned_adapter_id text,
    variant text CONSTRAINT request_variant_not_null NOT NULL,
    bucket integer,
    experiment text,
    user_key text CONSTRAINT request_user_key_not_null NOT NULL,
    parent_id uuid,
    api text CONSTRAINT request_api_not_null NOT NULL,
    started_at timestamp with time zone CONSTRAINT request_started_at_not_null NOT NULL,
    finished_at timestamp with time zone CONSTRAINT request_finished_at_not_null NOT NULL,
    finish_reason text CONSTRAINT request_finish_reason_not_null NOT NULL,
    error text,
    prompt_tokens integer CONSTRAINT request_prompt_tokens_not_null NOT NULL,
    cached_tokens integer CONSTRAINT request_cached_tokens_not_null NOT NULL,
    completion_tokens integer CONSTRAINT request_completion_tokens_not_null NOT NULL,
    queue_ms double precision,
    ttft_ms double precision,
    duration_ms double precision CONSTRAINT request_duration_ms_not_null NOT NULL,
    sampling jsonb CONSTRAINT request_sampling_not_null NOT NULL,
    stream boolean CONSTRAINT request_stream_not_null NOT NULL,
    source text CONSTRAINT request_source_not_null NOT NULL,
    recorded_at timestamp with time zone DEFAULT clock_timestamp() CONSTRAINT request_recorded_at_not_null NOT NULL,
    CONSTRAINT request_api_check CHECK ((api = ANY (ARRAY['chat'::text, 'completions'::text, 'responses'::text, 'embeddings'::text, 'score'::text]))),
    CONSTRAINT request_bucket_check CHECK (((bucket >= 0) AND (bucket <= 9999))),
    CONSTRAINT request_cached_tokens_check CHECK ((cached_tokens >= 0)),
    CONSTRAINT request_completion_tokens_check CHECK ((completion_tokens >= 0)),
    CONSTRAINT request_finish_reason_check CHECK ((finish_reason = ANY (ARRAY['stop'::text, 'length'::text, 'abort'::text, 'error'::text, 'interrupted'::text]))),
    CONSTRAINT request_prompt_tokens_check CHECK ((prompt_tokens >= 0)),
    CONSTRAINT request_source_check CHECK ((source = ANY (ARRAY['traffic'::text, 'eval'::text]))),
    CONSTRAINT request_variant_check CHECK ((variant = ANY (ARRAY['prod'::text, 'canary'::text, 'base'::text, 'direct'::text])))
);

CREATE VIEW obs.default_rows AS
 SELECT 'request'::text AS parent,
    count(*) AS rows
   FROM obs.request_default
UNION ALL
 SELECT 'content'::text AS parent,
    count(*) AS rows
   FROM obs.content_default
UNION ALL
 SELECT 'embedding'::text AS parent,
    count(*) AS rows
   FROM obs.embedding_default;

CREATE VIEW obs.inference_log AS
 SELECT id,
    created_at,
    tenant,
    endpoint,
    requested_model,
    base_model,
    base_digest,
    adapter_id,
    adapter_digest,
    assigned_adapter_id,
    variant,
    bucket,
    experiment,
    user_key,
    parent_id,
    api,
    source,
    messages,
    prompt_hash,
    completion,
    pii_flags,
    embedding,
    fb_explicit,
    fb_regen,
    fb_edited,
    fb_comment,
    finish_reason,
    error,
    prompt_tokens,
    cached_tokens,
    completion_tokens,
    queue_ms,
    ttft_ms,
    duration_ms,
    sampling,
    stream
   FROM obs.inference_log_at('infinity'::timestamp with time zone) inference_log_at(id, created_at, tenant, endpoint, requested_model, base_model, base_digest, adapter_id, adapter_digest, assigned_adapter_id, variant, bucket, experiment, user_key, parent_id, api, source, messages, prompt_hash, completion, pii_flags, embedding, fb_explicit, fb_regen, fb_edited, fb_comment, finish_reason, error, prompt_tokens, cached_tokens, completion_tokens, queue_ms, ttft_ms, duration_ms, sampling, stream);

CREATE VIEW obs.eligible AS
 SELECT l.id,
    l.created_at,
    l.tenant,
    l.endpoint,
    l.requested_model,
    l.base_model,
    l.base_digest,
    l.adapter_id,
    l.adapter_digest,
    l.assigned_adapter_id,
    l.variant,
    l.bucket,
    l.experiment,
    l.user_key,
    l.parent_id,
    l.api,
    l.source,
    l.messages,
    l.prompt_hash,
    l.completion,
    l.pii_flags,
    l.embedding,
    l.fb_explicit,
    l.fb_regen,
    l.fb_edited,
    l.fb_comment,
    l.finish_reason,
    l.error,
    l.prompt_tokens,
    l.cached_tokens,
    l.completion_tokens,
    l.queue_ms,
    l.ttft_ms,
    l.duration_ms,
    l.sampling,
    l.stream
   FROM (obs.inference_log l
     JOIN obs.eligibility_at('infinity'::timestamp with time zone) e(id, tenant, is_traffic, is_finished, has_content, is_clean, has_consent, is_eligible) ON ((e.id = l.id)))
  WHERE e.is_eligible;

CREATE VIEW obs.feedback_current AS
 SELECT DISTINCT ON (tenant, request_id, kind) id,
    tenant,
    request_id,
    kind,
    value,
    text,
    actor,
    idempotency_key,
    at,
    recorded_at
   FROM obs.feedback
  ORDER BY tenant, request_id, kind, at DESC, id DESC;

CREATE VIEW obs.partition AS
 SELECT (parent.relname)::text AS parent,
    (child.relname)::text AS name,
    obs.uuid_time(("substring"(bound.text, 'FROM \(''([0-9a-f-]+)''\)'::text))::uuid) AS starts_at,
    obs.uuid_time(("substring"(bound.text, 'TO \(''([0-9a-f-]+)''\)'::text))::uuid) AS ends_at
   FROM (((pg_inherits i
     JOIN pg_class child ON ((child.oid = i.inhrelid)))
     JOIN pg_class parent ON ((parent.oid = i.inhparent)))
     CROSS JOIN LATERAL ( SELECT pg_get_expr(child.relpartbound, child.oid) AS text) bound)
  WHERE ((parent.relnamespace = ('obs'::regnamespace)::oid) AND (parent.relkind = 'p'::"char"));

CREATE TABLE serve.adapter_event (
    id bigint NOT NULL,
    adapter_id serve.label NOT NULL,
    endpoint serve.label,
    kind text NOT NULL,
    from_status text,
    to_status text NOT NULL,
    from_digest text,
    to_digest text NOT NULL,
    traffic_pct numeric(5,2) NOT NULL,
    actor text NOT NULL,
    reason text,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT adapter_event_kind_check CHECK ((kind = ANY (ARRAY['registered'::text, 'status'::text, 'traffic'::text, 'replaced'::text, 'loaded'::text, 'unloaded'::text, 'pinned'::text, 'unpinned'::text])))
);

ALTER TABLE serve.adapter_event ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME serve.adapter_event_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE serve.api_key (
    id uuid DEFAULT uuidv7() NOT NULL,
    tenant serve.label NOT NULL,
    digest bytea NOT NULL,
    role text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    revoked_at timestamp with time zone,
    CONSTRAINT api_key_digest_check CHECK ((octet_length(digest) = 32)),
    CONSTRAINT api_key_role_check CHECK ((role = ANY (ARRAY['client'::text, 'admin'::text])))
);

CREATE TABLE serve.base_model (
    name serve.label NOT NULL,
    digest text NOT NULL,
    folder text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT base_model_digest_check CHECK ((digest <> ALL (ARRAY[''::text, 'base'::text])))
);

CREATE TABLE serve.batch (
    id text NOT NULL,
    tenant serve.label NOT NULL,
    endpoint text NOT NULL,
    input_file_id text NOT NULL,
    completion_window text NOT NULL,
    metadata jsonb,
    output_seconds integer,
    source text NOT NULL,
    user_key text,
    conversation text,
    status text DEFAULT 'validating'::text NOT NULL,
    errors jsonb,
    model text,
    output_file_id text,
    error_file_id text,
    total integer DEFAULT 0 NOT NULL,
    completed integer DEFAULT 0 NOT NULL,
    failed integer DEFAULT 0 NOT NULL,
    input_tokens bigint DEFAULT 0 NOT NULL,
    cached_tokens bigint DEFAULT 0 NOT NULL,
    output_tokens bigint DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    in_progress_at timestamp with time zone,
    finalizing_at timestamp with time zone,
    completed_at timestamp with time zone,
    failed_at timestamp with time zone,
    expired_at timestamp with time zone,
    cancelling_at timestamp with time zone,
    cancelled_at timestamp with time zone,
    lease_no bigint DEFAULT 0 NOT NULL,
    lease_until timestamp with time zone,
    CONSTRAINT batch_errors_check CHECK ((jsonb_typeof(errors) = 'array'::text)),
    CONSTRAINT batch_metadata_check CHECK ((jsonb_typeof(metadata) = 'object'::text)),
    CONSTRAINT batch_output_seconds_check CHECK ((output_seconds > 0)),
    CONSTRAINT batch_source_check CHECK ((source = ANY (ARRAY['traffic'::text, 'eval'::text]))),
    CONSTRAINT batch_status_check CHECK ((status = ANY (ARRAY['validating'::text, 'failed'::text, 'in_progress'::text, 'finalizing'::text, 'completed'::text, 'expired'::text, 'cancelling'::text, 'cancelled'::text])))
);

CREATE TABLE serve.batch_part (
    batch_id text NOT NULL,
    name text NOT NULL,
    sha256 text NOT NULL,
    output_bytes bigint NOT NULL,
    error_bytes bigint NOT NULL,
    lines integer[] NOT NULL,
    written_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT batch_part_error_bytes_check CHECK ((error_bytes >= 0)),
    CONSTRAINT batch_part_output_bytes_check CHECK ((output_bytes >= 0))
);

CREATE TABLE serve.endpoint (
    name serve.label NOT NULL,
    tenant serve.label NOT NULL,
    base_model serve.label NOT NULL,
    experiment serve.label DEFAULT 'none'::text NOT NULL,
    anchor serve.label,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE serve.file (
    id text NOT NULL,
    tenant serve.label NOT NULL,
    filename text NOT NULL,
    purpose text NOT NULL,
    bytes bigint NOT NULL,
    sha256 text NOT NULL,
    status text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone,
    CONSTRAINT file_bytes_check CHECK ((bytes >= 0)),
    CONSTRAINT file_purpose_check CHECK ((purpose = ANY (ARRAY['batch'::text, 'batch_output'::text]))),
    CONSTRAINT file_status_check CHECK ((status = ANY (ARRAY['uploading'::text, 'uploaded'::text, 'removed'::text])))
);

CREATE TABLE serve.registry_change (
    epoch bigint NOT NULL,
    adapter_id serve.label,
    mark uuid DEFAULT gen_random_uuid() NOT NULL
);

CREATE TABLE serve.registry_epoch (
    singleton boolean DEFAULT true NOT NULL,
    epoch bigint NOT NULL,
    CONSTRAINT registry_epoch_singleton_check CHECK (singleton)
);

CREATE UNLOGGED TABLE serve.residency (
    replica text NOT NULL,
    base_model serve.label NOT NULL,
    adapter_digest text NOT NULL,
    state text NOT NULL,
    slot integer,
    bytes bigint NOT NULL,
    last_use timestamp with time zone,
    CONSTRAINT residency_bytes_check CHECK ((bytes >= 0))
)
WITH (fillfactor='70');

CREATE TABLE serve.response (
    id uuid NOT NULL,
    tenant text NOT NULL,
    previous_id uuid,
    model text NOT NULL,
    status text NOT NULL,
    input_items jsonb NOT NULL,
    output_items jsonb NOT NULL,
    answer jsonb NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    octets integer GENERATED ALWAYS AS ((octet_length((input_items)::text) + octet_length((output_items)::text))) STORED NOT NULL,
    CONSTRAINT response_answer_check CHECK ((jsonb_typeof(answer) = 'object'::text)),
    CONSTRAINT response_input_items_check CHECK ((jsonb_typeof(input_items) = 'array'::text)),
    CONSTRAINT response_output_items_check CHECK ((jsonb_typeof(output_items) = 'array'::text)),
    CONSTRAINT response_status_check CHECK ((status = ANY (ARRAY['completed'::text, 'incomplete'::text])))
);

CREATE TABLE serve.taken_name (
    name serve.label NOT NULL,
    kind text NOT NULL
);

CREATE TABLE serve.tenant (
    id serve.label NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE train.eval_case (
    subject text NOT NULL,
    base_digest text NOT NULL,
    suite text NOT NULL,
    attempt integer NOT NULL,
    case_id text NOT NULL,
    prompt_hash text NOT NULL,
    completion text NOT NULL,
    finish_reason text NOT NULL,
    scores jsonb NOT NULL,
    CONSTRAINT eval_case_attempt_check CHECK ((attempt > 0))
);

ALTER TABLE train.eval_result ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME train.eval_result_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE train.eval_suite (
    name text NOT NULL,
    suite_hash text NOT NULL,
    n_cases integer NOT NULL,
    registered_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT eval_suite_n_cases_check CHECK ((n_cases > 0))
);

CREATE TABLE train.judge_calibration (
    id uuid DEFAULT uuidv7() NOT NULL,
    suite text NOT NULL,
    suite_hash text NOT NULL,
    judge jsonb NOT NULL,
    n integer NOT NULL,
    agreement double precision NOT NULL,
    kappa double precision NOT NULL,
    kappa_low double precision NOT NULL,
    kappa_high double precision NOT NULL,
    accepted boolean NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT judge_calibration_agreement_check CHECK (((agreement >= (0)::double precision) AND (agreement <= (1)::double precision))),
    CONSTRAINT judge_calibration_kappa_check CHECK (((kappa >= ('-1'::integer)::double precision) AND (kappa <= (1)::double precision))),
    CONSTRAINT judge_calibration_kappa_high_check CHECK (((kappa_high >= ('-1'::integer)::double precision) AND (kappa_high <= (1)::double precision))),
    CONSTRAINT judge_calibration_kappa_low_check CHECK (((kappa_low >= ('-1'::integer)::double precision) AND (kappa_low <= (1)::double precision))),
    CONSTRAINT judge_calibration_n_check CHECK ((n > 0))
);

CREATE TABLE train.run (
    id uuid DEFAULT uuidv7() NOT NULL,
    endpoint serve.label NOT NULL,
    adapter_id serve.label NOT NULL,
    method text NOT NULL,
    snapshot_id uuid NOT NULL,
    base_model serve.label NOT NULL,
    base_digest text NOT NULL,
    parent serve.label,
    params jsonb NOT NULL,
    versions jsonb NOT NULL,
    status text DEFAULT 'running'::text NOT NULL,
    step integer DEFAULT 0 NOT NULL,
    total_steps integer,
    figures jsonb DEFAULT '{}'::jsonb NOT NULL,
    adapter_digest text,
    error text,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    heartbeat_at timestamp with time zone DEFAULT now() NOT NULL,
    finished_at timestamp with time zone,
    CONSTRAINT end_is_whole CHECK (
CASE status
    WHEN 'running'::text THEN (finished_at IS NULL)
    WHEN 'finished'::text THEN ((finished_at IS NOT NULL) AND (adapter_digest IS NOT NULL))
    ELSE ((finished_at IS NOT NULL) AND (error IS NOT NULL))
END),
    CONSTRAINT run_status_check CHECK ((status = ANY (ARRAY['running'::text, 'finished'::text, 'failed'::text]))),
    CONSTRAINT run_step_check CHECK ((step >= 0)),
    CONSTRAINT run_total_steps_check CHECK ((total_steps > 0))
);

CREATE TABLE train.run_point (
    run_id uuid NOT NULL,
    step integer NOT NULL,
    figures jsonb NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT run_point_step_check CHECK ((step >= 0))
);

CREATE TABLE train.schedule (
    id uuid DEFAULT uuidv7() NOT NULL,
    endpoint serve.label NOT NULL,
    method text NOT NULL,
    cron text NOT NULL,
    params jsonb DEFAULT '{}'::jsonb NOT NULL,
    enabled boolean DEFAULT true NOT NULL,
    last_run_at timestamp with time zone
);

CREATE TABLE train.snapshot (
    id uuid DEFAULT uuidv7() NOT NULL,
    tenant serve.label NOT NULL,
    endpoint serve.label NOT NULL,
    method text NOT NULL,
    as_of timestamp with time zone NOT NULL,
    seed bigint NOT NULL,
    params jsonb NOT NULL,
    sql text NOT NULL,
    counts json NOT NULL,
    rows integer NOT NULL,
    desirable integer NOT NULL,
    undesirable integer NOT NULL,
    set_hash text NOT NULL,
    created_by text DEFAULT audit.actor() NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT snapshot_desirable_check CHECK ((desirable >= 0)),
    CONSTRAINT snapshot_rows_check CHECK ((rows > 0)),
    CONSTRAINT snapshot_undesirable_check CHECK ((undesirable >= 0))
);

CREATE TABLE train.snapshot_row (
    snapshot_id uuid NOT NULL,
    ordinal integer NOT NULL,
    request_id uuid NOT NULL,
    origin text NOT NULL,
    label boolean NOT NULL,
    payload jsonb NOT NULL,
    payload_hash text NOT NULL,
    CONSTRAINT snapshot_row_ordinal_check CHECK ((ordinal >= 0)),
    CONSTRAINT snapshot_row_origin_check CHECK ((origin = ANY (ARRAY['thumbs'::text, 'edit'::text, 'corrected'::text, 'regenerated'::text, 'accepted'::text])))
);

ALTER TABLE ONLY obs.content ATTACH PARTITION obs.content_default DEFAULT;

ALTER TABLE ONLY obs.embedding ATTACH PARTITION obs.embedding_default DEFAULT;

ALTER TABLE ONLY obs.request ATTACH PARTITION obs.request_default DEFAULT;

ALTER TABLE ONLY audit.event
    ADD CONSTRAINT event_pkey PRIMARY KEY (seq);

ALTER TABLE ONLY obs.consent
    ADD CONSTRAINT consent_pkey PRIMARY KEY (id);

ALTER TABLE ONLY obs.content
    ADD CONSTRAINT content_pkey PRIMARY KEY (id);

ALTER TABLE ONLY obs.content_default
    ADD CONSTRAINT content_default_pkey PRIMARY KEY (id);

ALTER TABLE ONLY obs.embedding
    ADD CONSTRAINT embedding_pkey PRIMARY KEY (id);

ALTER TABLE ONLY obs.embedding_default
    ADD CONSTRAINT embedding_default_pkey PRIMARY KEY (id);

ALTER TABLE ONLY obs.feedback
    ADD CONSTRAINT feedback_pkey PRIMARY KEY (id);

ALTER TABLE ONLY obs.feedback
    ADD CONSTRAINT feedback_tenant_request_id_actor_idempotency_key_key UNIQUE (tenant, request_id, actor, idempotency_key);

ALTER TABLE ONLY obs.request
    ADD CONSTRAINT request_pkey PRIMARY KEY (id);

ALTER TABLE ONLY obs.request_default
    ADD CONSTRAINT request_default_pkey PRIMARY KEY (id);

ALTER TABLE ONLY serve.adapter_event
    ADD CONSTRAINT adapter_event_pkey PRIMARY KEY (id);

ALTER TABLE ONLY serve.adapter
    ADD CONSTRAINT adapter_pkey PRIMARY KEY (id);

ALTER TABLE ONLY serve.api_key
    ADD CONSTRAINT api_key_digest_key UNIQUE (digest);

ALTER TABLE ONLY serve.api_key
    ADD CONSTRAINT api_key_pkey PRIMARY KEY (id);

ALTER TABLE ONLY serve.base_model
    ADD CONSTRAINT base_model_pkey PRIMARY KEY (name);

ALTER TABLE ONLY serve.batch_part
    ADD CONSTRAINT batch_part_pkey PRIMARY KEY (batch_id, name);

ALTER TABLE ONLY serve.batch
    ADD CONSTRAINT batch_pkey PRIMARY KEY (id);

ALTER TABLE ONLY serve.endpoint
    ADD CONSTRAINT endpoint_name_base_model_key UNIQUE (name, base_model);

ALTER TABLE ONLY serve.endpoint
    ADD CONSTRAINT endpoint_pkey PRIMARY KEY (name);

ALTER TABLE ONLY serve.file
    ADD CONSTRAINT file_pkey PRIMARY KEY (id);

ALTER TABLE ONLY serve.registry_change
    ADD CONSTRAINT registry_change_pkey PRIMARY KEY (epoch);

ALTER TABLE ONLY serve.registry_epoch
    ADD CONSTRAINT registry_epoch_pkey PRIMARY KEY (singleton);

ALTER TABLE ONLY serve.residency
    ADD CONSTRAINT residency_pkey PRIMARY KEY (replica, adapter_digest);

ALTER TABLE ONLY serve.response
    ADD CONSTRAINT response_pkey PRIMARY KEY (id);

ALTER TABLE ONLY serve.taken_name
    ADD CONSTRAINT taken_name_pkey PRIMARY KEY (name);

ALTER TABLE ONLY serve.tenant
    ADD CONSTRAINT tenant_pkey PRIMARY KEY (id);

ALTER TABLE ONLY train.eval_case
    ADD CONSTRAINT eval_case_pkey PRIMARY KEY (subject, base_digest, suite, attempt, case_id);

ALTER TABLE ONLY train.eval_metric
    ADD CONSTRAINT eval_metric_suite_metric_endpoint_key UNIQUE NULLS NOT DISTINCT (suite, metric, endpoint);

ALTER TABLE ONLY train.eval_result
    ADD CONSTRAINT eval_result_pkey PRIMARY KEY (id);

ALTER TABLE ONLY train.eval_result
    ADD CONSTRAINT eval_result_subject_base_digest_suite_attempt_metric_key UNIQUE (subject, base_digest, suite, attempt, metric);

ALTER TABLE ONLY train.eval_suite
    ADD CONSTRAINT eval_suite_pkey PRIMARY KEY (name, suite_hash);

ALTER TABLE ONLY train.judge_calibration
    ADD CONSTRAINT judge_calibration_pkey PRIMARY KEY (id);

ALTER TABLE ONLY train.run
    ADD CONSTRAINT run_pkey PRIMARY KEY (id);

ALTER TABLE ONLY train.run_point
    ADD CONSTRAINT run_point_pkey PRIMARY KEY (run_id, step);

ALTER TABLE ONLY train.schedule
    ADD CONSTRAINT schedule_endpoint_method_key UNIQUE (endpoint, method);

ALTER TABLE ONLY train.schedule
    ADD CONSTRAINT schedule_pkey PRIMARY KEY (id);

ALTER TABLE ONLY train.snapshot
    ADD CONSTRAINT snapshot_pkey PRIMARY KEY (id);

ALTER TABLE ONLY train.snapshot_row
    ADD CONSTRAINT snapshot_row_pkey PRIMARY KEY (snapshot_id, ordinal);

ALTER TABLE ONLY train.snapshot_row
    ADD CONSTRAINT snapshot_row_snapshot_id_payload_hash_key UNIQUE (snapshot_id, payload_hash);

CREATE INDEX consent_by_user ON obs.consent USING btree (tenant, user_key, at, id);

CREATE INDEX feedback_by_request ON obs.feedback USING btree (request_id, kind, at, id);

CREATE INDEX request_by_endpoint ON ONLY obs.request USING btree (endpoint, started_at);

CREATE INDEX request_by_parent ON ONLY obs.request USING btree (parent_id) WHERE (parent_id IS NOT NULL);

CREATE INDEX request_default_endpoint_started_at_idx ON obs.request_default USING btree (endpoint, started_at);

CREATE INDEX request_default_parent_id_idx ON obs.request_default USING btree (parent_id) WHERE (parent_id IS NOT NULL);

CREATE INDEX adapter_by_digest ON serve.adapter USING btree (digest);

CREATE INDEX adapter_by_endpoint ON serve.adapter USING btree (endpoint);

CREATE INDEX adapter_event_by_adapter ON serve.adapter_event USING btree (adapter_id, id);

CREATE INDEX batch_by_tenant ON serve.batch USING btree (tenant, created_at, id);

CREATE INDEX batch_unfinished ON serve.batch USING btree (created_at) WHERE (status = ANY (ARRAY['validating'::text, 'in_progress'::text, 'finalizing'::text, 'cancelling'::text]));

CREATE INDEX file_by_expiry ON serve.file USING btree (expires_at) WHERE (expires_at IS NOT NULL);

CREATE INDEX file_by_tenant ON serve.file USING btree (tenant, created_at, id);

CREATE UNIQUE INDEX one_prod_per_endpoint ON serve.adapter USING btree (endpoint) WHERE (status = 'prod'::text);

CREATE INDEX response_by_expiry ON serve.response USING btree (expires_at);

CREATE INDEX run_by_snapshot ON train.run USING btree (snapshot_id);

CREATE INDEX snapshot_by_endpoint ON train.snapshot USING btree (endpoint, id);

CREATE INDEX snapshot_row_by_request ON train.snapshot_row USING btree (request_id);

ALTER INDEX obs.content_pkey ATTACH PARTITION obs.content_default_pkey;

ALTER INDEX obs.embedding_pkey ATTACH PARTITION obs.embedding_default_pkey;

ALTER INDEX obs.request_by_endpoint ATTACH PARTITION obs.request_default_endpoint_started_at_idx;

ALTER INDEX obs.request_by_parent ATTACH PARTITION obs.request_default_parent_id_idx;

ALTER INDEX obs.request_pkey ATTACH PARTITION obs.request_default_pkey;

CREATE TRIGGER append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON audit.event FOR EACH STATEMENT EXECUTE FUNCTION audit.refuse_change();

CREATE TRIGGER append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON obs.consent FOR EACH STATEMENT EXECUTE FUNCTION audit.refuse_change();

CREATE TRIGGER append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON obs.feedback FOR EACH STATEMENT EXECUTE FUNCTION audit.refuse_change();

CREATE TRIGGER audit_consent AFTER INSERT ON obs.consent FOR EACH ROW EXECUTE FUNCTION obs.audit_consent();

CREATE TRIGGER enter_as_writer BEFORE INSERT ON obs.consent FOR EACH STATEMENT EXECUTE FUNCTION obs.enter_as_writer();

CREATE TRIGGER enter_as_writer BEFORE INSERT ON obs.feedback FOR EACH STATEMENT EXECUTE FUNCTION obs.enter_as_writer();

CREATE TRIGGER enter_as_writer BEFORE INSERT ON obs.request FOR EACH STATEMENT EXECUTE FUNCTION obs.enter_as_writer();

CREATE TRIGGER append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON serve.adapter_event FOR EACH STATEMENT EXECUTE FUNCTION audit.refuse_change();

CREATE TRIGGER audit_anchor AFTER UPDATE ON serve.endpoint FOR EACH ROW WHEN (((old.anchor)::text IS DISTINCT FROM (new.anchor)::text)) EXECUTE FUNCTION serve.audit_anchor();

CREATE TRIGGER bump_epoch AFTER INSERT OR DELETE OR UPDATE ON serve.base_model FOR EACH ROW EXECUTE FUNCTION serve.bump_epoch_after();

CREATE TRIGGER bump_epoch AFTER INSERT OR DELETE OR UPDATE ON serve.endpoint FOR EACH ROW EXECUTE FUNCTION serve.bump_epoch_after();

CREATE TRIGGER greet_adapter AFTER INSERT ON serve.adapter FOR EACH ROW EXECUTE FUNCTION serve.greet_adapter();

CREATE TRIGGER guard_adapter BEFORE UPDATE ON serve.adapter FOR EACH ROW EXECUTE FUNCTION serve.guard_adapter();

CREATE TRIGGER record_key AFTER INSERT OR UPDATE OF revoked_at ON serve.api_key FOR EACH ROW EXECUTE FUNCTION serve.record_key();

CREATE TRIGGER take_name BEFORE INSERT ON serve.adapter FOR EACH ROW EXECUTE FUNCTION serve.take_name();

CREATE TRIGGER take_name BEFORE INSERT ON serve.base_model FOR EACH ROW EXECUTE FUNCTION serve.take_name();

CREATE TRIGGER take_name BEFORE INSERT ON serve.endpoint FOR EACH ROW EXECUTE FUNCTION serve.take_name();

CREATE TRIGGER append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON train.eval_result FOR EACH STATEMENT EXECUTE FUNCTION audit.refuse_change();

CREATE TRIGGER append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON train.snapshot FOR EACH STATEMENT EXECUTE FUNCTION audit.refuse_change();

CREATE TRIGGER append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON train.snapshot_row FOR EACH STATEMENT EXECUTE FUNCTION audit.refuse_change();

CREATE TRIGGER audit_rule AFTER INSERT OR DELETE OR UPDATE ON train.eval_metric FOR EACH ROW EXECUTE FUNCTION train.audit_rule();

ALTER TABLE ONLY obs.consent
    ADD CONSTRAINT consent_tenant_fkey FOREIGN KEY (tenant) REFERENCES serve.tenant(id);

ALTER TABLE ONLY serve.adapter
    ADD CONSTRAINT adapter_base_model_fkey FOREIGN KEY (base_model) REFERENCES serve.base_model(name);

ALTER TABLE ONLY serve.adapter
    ADD CONSTRAINT adapter_endpoint_base_model_fkey FOREIGN KEY (endpoint, base_model) REFERENCES serve.endpoint(name, base_model);

ALTER TABLE ONLY serve.adapter_event
    ADD CONSTRAINT adapter_event_adapter_id_fkey FOREIGN KEY (adapter_id) REFERENCES serve.adapter(id);

ALTER TABLE ONLY serve.adapter
    ADD CONSTRAINT adapter_parent_fkey FOREIGN KEY (parent) REFERENCES serve.adapter(id);

ALTER TABLE ONLY serve.adapter
    ADD CONSTRAINT adapter_replaced_fkey FOREIGN KEY (replaced) REFERENCES serve.adapter(id);

ALTER TABLE ONLY serve.adapter
    ADD CONSTRAINT adapter_run_id_fkey FOREIGN KEY (run_id) REFERENCES train.run(id);

ALTER TABLE ONLY serve.api_key
    ADD CONSTRAINT api_key_tenant_fkey FOREIGN KEY (tenant) REFERENCES serve.tenant(id);

ALTER TABLE ONLY serve.batch_part
    ADD CONSTRAINT batch_part_batch_id_fkey FOREIGN KEY (batch_id) REFERENCES serve.batch(id);

ALTER TABLE ONLY serve.endpoint
    ADD CONSTRAINT endpoint_anchor_fkey FOREIGN KEY (anchor) REFERENCES serve.adapter(id);

ALTER TABLE ONLY serve.endpoint
    ADD CONSTRAINT endpoint_base_model_fkey FOREIGN KEY (base_model) REFERENCES serve.base_model(name);

ALTER TABLE ONLY serve.endpoint
    ADD CONSTRAINT endpoint_tenant_fkey FOREIGN KEY (tenant) REFERENCES serve.tenant(id);

ALTER TABLE ONLY train.eval_metric
    ADD CONSTRAINT eval_metric_endpoint_fkey FOREIGN KEY (endpoint) REFERENCES serve.endpoint(name);

ALTER TABLE ONLY train.run
    ADD CONSTRAINT run_base_model_fkey FOREIGN KEY (base_model) REFERENCES serve.base_model(name);

ALTER TABLE ONLY train.run
    ADD CONSTRAINT run_endpoint_fkey FOREIGN KEY (endpoint) REFERENCES serve.endpoint(name);

ALTER TABLE ONLY train.run
    ADD CONSTRAINT run_parent_fkey FOREIGN KEY (parent) REFERENCES serve.adapter(id);

ALTER TABLE ONLY train.run_point
    ADD CONSTRAINT run_point_run_id_fkey FOREIGN KEY (run_id) REFERENCES train.run(id);

ALTER TABLE ONLY train.run
    ADD CONSTRAINT run_snapshot_id_fkey FOREIGN KEY (snapshot_id) REFERENCES train.snapshot(id);

ALTER TABLE ONLY train.schedule
    ADD CONSTRAINT schedule_endpoint_fkey FOREIGN KEY (endpoint) REFERENCES serve.endpoint(name);

ALTER TABLE ONLY train.snapshot
    ADD CONSTRAINT snapshot_endpoint_fkey FOREIGN KEY (endpoint) REFERENCES serve.endpoint(name);

ALTER TABLE ONLY train.snapshot_row
    ADD CONSTRAINT snapshot_row_snapshot_id_fkey FOREIGN KEY (snapshot_id) REFERENCES train.snapshot(id);

ALTER TABLE ONLY train.snapshot
    ADD CONSTRAINT snapshot_tenant_fkey FOREIGN KEY (tenant) REFERENCES serve.tenant(id);
