"""The page carver: rows and keys of any database file, with the place each was found at."""
