"""The one transaction, and each database's fast road into it."""
