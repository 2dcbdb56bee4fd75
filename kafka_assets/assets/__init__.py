"""The only room that knows Dagster: decorator, IO manager, sensor, resources."""
