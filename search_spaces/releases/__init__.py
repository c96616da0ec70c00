"""What each vLLM release line can do, one YAML each."""
