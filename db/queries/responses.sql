-- insert: keep an answer; one that is there already stays as it is.
INSERT INTO serve.response
    (id, tenant, previous_id, model, status, input_items, output_items, answer, created_at, expires_at)
VALUES
    (%(id)s, %(tenant)s, %(previous_id)s, %(model)s, %(status)s, %(input_items)s, %(output_items)s, %(answer)s,
     %(created_at)s, %(expires_at)s)
ON CONFLICT (id) DO NOTHING;

-- get: one answer of a tenant that has not expired.
SELECT id::text AS id, tenant, previous_id::text AS previous_id, model, status, input_items, output_items, answer,
       created_at, expires_at
FROM serve.response
WHERE id = %(id)s AND tenant = %(tenant)s AND expires_at > now();

-- chain: an answer and all that it went on from, oldest first, no further than the bounds allow.
WITH RECURSIVE chain AS (
    SELECT r.id, r.tenant, r.previous_id, r.input_items, r.output_items, 1 AS turns, r.octets::bigint AS octets
    FROM serve.response r
    WHERE r.id = %(id)s AND r.tenant = %(tenant)s AND r.expires_at > now()
    UNION ALL
    SELECT p.id, p.tenant, p.previous_id, p.input_items, p.output_items, c.turns + 1, c.octets + p.octets
    FROM chain c
    JOIN serve.response p ON p.id = c.previous_id AND p.tenant = c.tenant AND p.expires_at > now()
    WHERE c.turns <= %(max_turns)s AND c.octets <= %(max_octets)s
)
SELECT id::text AS id, previous_id::text AS previous_id, input_items, output_items, turns, octets
FROM chain
ORDER BY turns DESC;

-- items: all items of some answers of a tenant, and of what was handed in for them.
SELECT item
FROM serve.response r
CROSS JOIN LATERAL jsonb_array_elements(r.input_items || r.output_items) AS item
WHERE r.id = ANY (%(ids)s::uuid[]) AND r.tenant = %(tenant)s AND r.expires_at > now();

-- delete: forget one answer of a tenant.
DELETE FROM serve.response WHERE id = %(id)s AND tenant = %(tenant)s AND expires_at > now();

-- delete_expired: forget what is past its time, a bounded number at once.
DELETE FROM serve.response
WHERE id IN (SELECT id FROM serve.response WHERE expires_at <= now() ORDER BY expires_at LIMIT %(limit)s);
