"""The smaller search layout that hermes-agent defines: converting to it, and its trigram switch."""
