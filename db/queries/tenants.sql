-- create: add a tenant; no row where there is one of the name.
INSERT INTO serve.tenant (id) VALUES (%(tenant)s) ON CONFLICT DO NOTHING;
