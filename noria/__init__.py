"""The front door: the noria command and its settings, the only reader of environment and TOML."""
