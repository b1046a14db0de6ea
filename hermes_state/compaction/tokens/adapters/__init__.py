"""Real tokenizers behind the one protocol; each loads its package when it is made, and says which extra has it."""
