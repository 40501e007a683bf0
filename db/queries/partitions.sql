-- missing: the weeks that are wanted and not there.
SELECT parent, week FROM obs.missing_weeks(%(weeks_ahead)s);

-- take_turns: one maker of weeks at a time.
SELECT pg_advisory_xact_lock(hashtextextended('obs.make_week', 0));

-- make: make one week; null when another was faster.
SELECT obs.make_week(%(parent)s, %(week)s) AS name;

-- default_rows: what lies in the DEFAULT partitions.
SELECT parent, rows FROM obs.default_rows;

-- expired: partitions whose whole week is older than the clock of their table.
SELECT name
FROM obs.partition
WHERE ends_at < %(now)s - CASE parent WHEN 'request' THEN %(metadata)s ELSE %(content)s END
ORDER BY name;

-- lock_timeout: give up after two seconds rather than queue every reader behind our lock.
SET LOCAL lock_timeout = '2s';
