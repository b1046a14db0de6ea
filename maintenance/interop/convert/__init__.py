"""What adoption kept of hermes-agent's gateway: routing, topics, deliveries and delegations, as rows that are used."""
