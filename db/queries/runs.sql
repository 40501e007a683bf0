-- start: add a run.
INSERT INTO train.run (endpoint, adapter_id, method, snapshot_id, base_model, base_digest, parent, params,
                       versions, total_steps)
VALUES (%(endpoint)s, %(adapter_id)s, %(method)s, %(snapshot_id)s, %(base_model)s, %(base_digest)s, %(parent)s,
        %(params)s, %(versions)s, %(total_steps)s)
RETURNING id::text AS id;

-- run: one by id.
SELECT id::text AS id, endpoint, adapter_id, method, snapshot_id::text AS snapshot_id, base_model, base_digest,
       parent, params, versions, status, step, total_steps, figures, adapter_digest, error, started_at,
       heartbeat_at, finished_at
FROM train.run
WHERE id = %(id)s;

-- progress: note the step reached by a run that is still running.
UPDATE train.run
SET step = greatest(step, %(step)s), total_steps = coalesce(%(total_steps)s, total_steps),
    heartbeat_at = clock_timestamp()
WHERE id = %(id)s AND status = 'running';

-- point: add a point to the curve; a step reported twice keeps its last figures.
INSERT INTO train.run_point (run_id, step, figures)
VALUES (%(id)s, %(step)s, %(figures)s)
ON CONFLICT (run_id, step) DO UPDATE SET figures = excluded.figures, at = excluded.at;

-- finish: close a running run with its result.
UPDATE train.run
SET status = 'finished', adapter_digest = %(adapter_digest)s, figures = %(figures)s,
    finished_at = clock_timestamp(), heartbeat_at = clock_timestamp()
WHERE id = %(id)s AND status = 'running';

-- fail: close a running run with its error.
UPDATE train.run
SET status = 'failed', error = %(error)s, finished_at = clock_timestamp(), heartbeat_at = clock_timestamp()
WHERE id = %(id)s AND status = 'running';

-- curve: every reported point, in order.
SELECT step, figures FROM train.run_point WHERE run_id = %(id)s ORDER BY step;
