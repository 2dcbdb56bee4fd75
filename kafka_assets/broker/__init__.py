"""The broker room: the only one that imports confluent_kafka. It knows the pure rooms, and nobody else."""
