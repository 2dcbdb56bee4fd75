"""The ledger: tables, statements, migrations, claims and fences."""
