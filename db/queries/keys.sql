-- active: digests of the client keys that are valid now, with their tenants.
SELECT encode(digest, 'hex') AS digest, tenant FROM serve.api_key WHERE role = 'client' AND revoked_at IS NULL;

-- create: add a key, known by its digest alone.
INSERT INTO serve.api_key (tenant, digest, role) VALUES (%(tenant)s, %(digest)s, 'client');

-- revoke: end the validity of a key.
UPDATE serve.api_key SET revoked_at = now() WHERE digest = %(digest)s AND revoked_at IS NULL;
