"""Search spaces that ship with the tuner, one YAML each."""
