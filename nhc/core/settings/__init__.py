"""Settings files: TOML with one clear line for each mistake."""
