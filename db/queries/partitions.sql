-- ensure: make the weeks that are wanted and missing.
SELECT made AS name FROM obs.ensure_partitions(%(weeks_ahead)s) AS made;

-- default_rows: what lies in the DEFAULT partitions.
SELECT parent, rows FROM obs.default_rows;

-- expired: partitions whose whole week is older than the clock of their table.
SELECT name
FROM obs.partition
WHERE ends_at < %(now)s - CASE parent WHEN 'request' THEN %(metadata)s ELSE %(content)s END
ORDER BY name;

-- lock_timeout: give up after two seconds rather than queue every reader behind the lock of a drop.
SET LOCAL lock_timeout = '2s';
