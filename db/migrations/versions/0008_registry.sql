-- What makes a plain UPDATE of serve.adapter safe: the rules of its statuses, shares and records.
-- Settings of a transaction: noria.actor (who), noria.override_reason (past the gate), noria.reason (why).

CREATE FUNCTION serve.local_setting(name text) RETURNS text LANGUAGE sql STABLE
RETURN nullif(current_setting(name, true), '');

CREATE FUNCTION serve.record_event(was serve.adapter, becomes serve.adapter, kind text, reason text,
                                   blockers jsonb DEFAULT NULL) RETURNS void LANGUAGE plpgsql AS $$
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

CREATE FUNCTION serve.may_follow(was text, becomes text) RETURNS boolean LANGUAGE sql IMMUTABLE
RETURN (was, becomes) IN (
    ('candidate', 'canary'), ('candidate', 'prod'), ('candidate', 'rejected'),
    ('canary', 'prod'), ('canary', 'candidate'), ('canary', 'retired'), ('canary', 'rejected'),
    ('prod', 'retired'), ('retired', 'prod'), ('retired', 'canary'));

CREATE FUNCTION serve.was_prod(adapter text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM serve.adapter_event e
                   WHERE e.adapter_id = adapter AND e.kind = 'status' AND e.to_status = 'prod')
$$;

-- Where a canary of `width` buckets may begin: at 0 when alone, else in the middle of the widest gap, so
-- that its neighbour keeps room to grow; at the end of that gap when the middle leaves too little.
CREATE FUNCTION serve.free_start(wanted_endpoint text, newcomer text, width integer) RETURNS integer
LANGUAGE sql STABLE AS $$
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

-- The checked place of a canary: its fixed first bucket. Raises when the share does not fit.
CREATE FUNCTION serve.place_canary(was serve.adapter, becomes serve.adapter) RETURNS integer
LANGUAGE plpgsql AS $$
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

-- The gate, for a row that becomes prod: null when it may, the blockers when they are overridden.
CREATE FUNCTION serve.pass_gate(becomes serve.adapter) RETURNS jsonb LANGUAGE plpgsql AS $$
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

CREATE FUNCTION serve.refuse_rewrite(was serve.adapter, becomes serve.adapter) RETURNS void
LANGUAGE plpgsql AS $$
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

CREATE FUNCTION serve.change_status(was serve.adapter, becomes serve.adapter) RETURNS serve.adapter
LANGUAGE plpgsql AS $$
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

-- A pin holds an adapter resident that is served; whoever serves it no longer needs none.
CREATE FUNCTION serve.check_pin(was serve.adapter, becomes serve.adapter) RETURNS serve.adapter
LANGUAGE plpgsql AS $$
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

CREATE FUNCTION serve.guard_adapter() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER guard_adapter BEFORE UPDATE ON serve.adapter
    FOR EACH ROW EXECUTE FUNCTION serve.guard_adapter();

CREATE FUNCTION serve.greet_adapter() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER greet_adapter AFTER INSERT ON serve.adapter
    FOR EACH ROW EXECUTE FUNCTION serve.greet_adapter();

-- Thin names for the UPDATE.

CREATE FUNCTION serve.set_status(adapter text, wanted text, share numeric DEFAULT NULL) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    -- The endpoint first and the adapter after it: writers that meet here wait, they do not deadlock.
    PERFORM FROM serve.endpoint e
    WHERE e.name = (SELECT a.endpoint FROM serve.adapter a WHERE a.id = set_status.adapter) FOR NO KEY UPDATE;
    UPDATE serve.adapter a SET status = wanted, traffic_pct = coalesce(share, a.traffic_pct) WHERE a.id = set_status.adapter;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no adapter has the id %', quote_literal(adapter) USING ERRCODE = 'NR003';
    END IF;
END $$;

CREATE FUNCTION serve.promote(adapter text) RETURNS void LANGUAGE sql AS $$
    SELECT serve.set_status(adapter, 'prod')
$$;

-- Also changes the share of a canary that runs.
CREATE FUNCTION serve.start_canary(adapter text, pct numeric) RETURNS void LANGUAGE sql AS $$
    SELECT serve.set_status(adapter, 'canary', pct)
$$;

CREATE FUNCTION serve.stop_canary(adapter text) RETURNS void LANGUAGE sql AS $$
    SELECT serve.set_status(adapter, 'candidate')
$$;

-- Undo the last promotion: what it replaced is prod again; null means that the base model serves.
CREATE FUNCTION serve.rollback(wanted_endpoint text) RETURNS text LANGUAGE plpgsql AS $$
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

-- The split as routers make it: which adapter a key is dealt (null: the base model) and why.
CREATE FUNCTION serve.assign(wanted_endpoint text, key text) RETURNS TABLE (adapter_id text, variant text, bucket integer)
LANGUAGE sql STABLE AS $$
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
