"""The Ray Serve application: OpenAI gateway, admin API, engine replicas and the request record."""
