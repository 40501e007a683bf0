-- The audit ledger: append-only, each event chained to the one before by its hash.
-- An event is written in the transaction of the change that it tells of, so neither is without the other.

CREATE SCHEMA audit;

CREATE FUNCTION audit.actor() RETURNS text LANGUAGE sql STABLE
RETURN coalesce(nullif(current_setting('noria.actor', true), ''), session_user::text);

CREATE TABLE audit.event (
    seq bigint PRIMARY KEY,
    at timestamptz NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    subject text NOT NULL,
    detail jsonb NOT NULL,
    previous bytea NOT NULL CHECK (octet_length(previous) = 32),
    hash bytea NOT NULL CHECK (octet_length(hash) = 32)
);

CREATE FUNCTION audit.event_hash(event audit.event) RETURNS bytea LANGUAGE sql STABLE
RETURN sha256((event).previous || convert_to(jsonb_build_array(
    (event).seq,
    to_char((event).at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'),
    (event).actor, (event).action, (event).subject, (event).detail
)::text, 'UTF8'));

-- Writers take turns until they commit: a chain has one end.
CREATE FUNCTION audit.append(action text, subject text, detail jsonb) RETURNS bigint
LANGUAGE plpgsql AS $$
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

-- Every way in which the ledger is not what was written; no row means that it holds.
CREATE FUNCTION audit.verify() RETURNS TABLE (seq bigint, problem text) LANGUAGE sql STABLE AS $$
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

CREATE FUNCTION audit.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%.% is append-only: % refused', TG_TABLE_SCHEMA, TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'NR004';
END $$;

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit.event
    FOR EACH STATEMENT EXECUTE FUNCTION audit.refuse_change();
