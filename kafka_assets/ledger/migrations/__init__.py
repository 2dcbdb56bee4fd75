"""The ledger's migrations: run by kafka_assets.ledger.schema, inside a transaction of its own."""
