"""Jobs of hermes-agent, brought into a native store."""
