"""The only SQL: tables, named queries, SQL functions, migrations and the embedded server."""
