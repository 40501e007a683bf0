-- set_status: move an adapter; a share of null leaves the share as it is.
SELECT serve.set_status(%(id)s, %(status)s, %(traffic_pct)s::numeric);

-- rollback: undo the last promotion of an endpoint; the id that is prod now, null for the base model.
SELECT serve.rollback(%(endpoint)s) AS id;

-- blockers: every reason against a promotion.
SELECT reason, suite, metric, candidate_value, current_value, limit_value, detail
FROM serve.promotion_blockers(%(candidate)s, %(current)s);
