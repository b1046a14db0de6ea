"""Sessions and their messages: what was said, in which order, and what is to be seen of it."""
