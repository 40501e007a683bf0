-- record: where adapters are now: these rows and no others.
WITH told AS (
    SELECT * FROM jsonb_to_recordset(%(rows)s) AS t (
        replica text, base_model text, adapter_digest text, state text, slot integer, bytes bigint,
        last_use timestamptz)
), gone AS (
    DELETE FROM serve.residency r
    WHERE NOT EXISTS (SELECT FROM told t WHERE (t.replica, t.adapter_digest) = (r.replica, r.adapter_digest))
)
INSERT INTO serve.residency AS r (replica, base_model, adapter_digest, state, slot, bytes, last_use)
SELECT replica, base_model, adapter_digest, state, slot, bytes, last_use FROM told
ON CONFLICT (replica, adapter_digest) DO UPDATE
SET state = excluded.state, slot = excluded.slot, bytes = excluded.bytes, last_use = excluded.last_use
WHERE (r.state, r.slot, r.bytes, r.last_use)
      IS DISTINCT FROM (excluded.state, excluded.slot, excluded.bytes, excluded.last_use);

-- rows: where adapters were at the last look.
SELECT replica, base_model, adapter_digest, state, slot, bytes, last_use
FROM serve.residency ORDER BY replica, adapter_digest;
