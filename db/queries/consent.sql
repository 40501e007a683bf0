-- add: write down a grant or a withdrawal.
INSERT INTO obs.consent (tenant, user_key, action)
VALUES (%(tenant)s, %(user_key)s, %(action)s)
RETURNING id::text AS id, tenant, user_key, action, actor, at;

-- history: the ledger of a tenant, oldest first.
SELECT id::text AS id, tenant, user_key, action, actor, at
FROM obs.consent
WHERE tenant = %(tenant)s
ORDER BY at, id;
