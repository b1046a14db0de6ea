"""Knowledge of each release's file as data: tables, columns, types, references, indexes."""
