-- Weekly partitions of obs: made ahead, watched, and listed for the retention job to drop.

-- The least UUID of a millisecond, and the millisecond of a UUIDv7 or of such a bound.
CREATE FUNCTION obs.uuid_floor(at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE STRICT
RETURN (lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid;

CREATE FUNCTION obs.uuid_time(id uuid) RETURNS timestamptz LANGUAGE sql IMMUTABLE STRICT
RETURN to_timestamp((('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint) / 1000.0);

CREATE VIEW obs.partition AS
SELECT parent.relname::text AS parent,
       child.relname::text AS name,
       obs.uuid_time(substring(bound.text FROM 'FROM \(''([0-9a-f-]+)''\)')::uuid) AS starts_at,
       obs.uuid_time(substring(bound.text FROM 'TO \(''([0-9a-f-]+)''\)')::uuid) AS ends_at
FROM pg_inherits i
JOIN pg_class child ON child.oid = i.inhrelid
JOIN pg_class parent ON parent.oid = i.inhparent
CROSS JOIN LATERAL (SELECT pg_get_expr(child.relpartbound, child.oid) AS text) bound
WHERE parent.relnamespace = 'obs'::regnamespace AND parent.relkind = 'p';

-- The alarm: rows that no week took. Any count above zero wants the weeks made.
CREATE VIEW obs.default_rows AS
SELECT 'request' AS parent, count(*) AS rows FROM obs.request_default
UNION ALL SELECT 'content', count(*) FROM obs.content_default
UNION ALL SELECT 'embedding', count(*) FROM obs.embedding_default;

-- Make one week of one table, unless it is there, moving in what the DEFAULT partition caught meanwhile.
-- The table is filled first and attached last: an ATTACH disturbs readers less than CREATE ... PARTITION OF.
CREATE FUNCTION obs.make_week(parent text, week timestamptz) RETURNS text LANGUAGE plpgsql AS $$
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
END $$;

-- The weeks that are wanted and not there: from the last one to `weeks_ahead`, and those of rows stranded
-- in a DEFAULT partition during the past year. Each is made in a transaction of its own: it locks the
-- DEFAULT partition of its table, and a reader of two tables must never wait for both.
CREATE FUNCTION obs.missing_weeks(weeks_ahead integer) RETURNS TABLE (parent text, week timestamptz)
LANGUAGE sql STABLE AS $$
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
