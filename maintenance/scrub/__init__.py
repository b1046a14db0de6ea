"""Taking a secret out of a store: rows, search index, free pages, WAL; and proof that it is gone."""
