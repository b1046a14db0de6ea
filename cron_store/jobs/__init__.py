"""Jobs: what was declared, in which version, and how it stands."""
