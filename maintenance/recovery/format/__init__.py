"""The SQLite file format read from bytes: pages, records, the WAL; nothing here uses SQLite."""
