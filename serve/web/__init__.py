"""The HTTP surface of a gateway: routes, authentication, errors, streams."""
