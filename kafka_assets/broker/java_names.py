"""The Java client's property names that librdkafka does not know, and what to write instead."""

from __future__ import annotations

_FORMAT = "the stream's `format` says how values are decoded"
_NONE = "remove it; librdkafka has no such property and does not need one"
_TLS = "remove it; OpenSSL's own choice is used"

JAVA_NAMES = {
    # security
    "sasl.jaas.config": "use sasl.username and sasl.password (with sasl.mechanism)",
    "sasl.client.callback.handler.class": _NONE,
    "sasl.login.callback.handler.class": "use sasl.oauthbearer.method",
    "sasl.login.class": _NONE,
    "sasl.login.connect.timeout.ms": "use socket.connection.setup.timeout.ms",
    "sasl.login.read.timeout.ms": "use socket.timeout.ms",
    "sasl.login.refresh.buffer.seconds": _NONE,
    "sasl.login.refresh.min.period.seconds": _NONE,
    "sasl.login.refresh.window.factor": _NONE,
    "sasl.login.refresh.window.jitter": _NONE,
    "sasl.login.retry.backoff.ms": _NONE,
    "sasl.login.retry.backoff.max.ms": _NONE,
    "sasl.kerberos.ticket.renew.jitter": "use sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.ticket.renew.window.factor": "use sasl.kerberos.min.time.before.relogin",
    "ssl.truststore.location": "use ssl.ca.location (a PEM file)",
    "ssl.truststore.certificates": "use ssl.ca.pem",
    "ssl.truststore.type": "remove it; ssl.ca.location is always PEM",
    "ssl.truststore.password": "remove it; ssl.ca.location (PEM) has no password",
    "ssl.keystore.type": "remove it; ssl.keystore.location is PKCS#12, or use ssl.certificate.location (PEM)",
    "ssl.keystore.key": "use ssl.key.pem",
    "ssl.keystore.certificate.chain": "use ssl.certificate.pem",
    "ssl.protocol": _TLS,
    "ssl.enabled.protocols": _TLS,
    "ssl.provider": _TLS,
    "ssl.keymanager.algorithm": _TLS,
    "ssl.trustmanager.algorithm": _TLS,
    "ssl.secure.random.implementation": _TLS,
    "ssl.engine.factory.class": _TLS,
    "security.providers": _TLS,
    # every client
    "send.buffer.bytes": "use socket.send.buffer.bytes",
    "receive.buffer.bytes": "use socket.receive.buffer.bytes",
    "default.api.timeout.ms": "use socket.timeout.ms",
    "socket.connection.setup.timeout.max.ms": "use socket.connection.setup.timeout.ms",
    "metric.reporters": "use statistics.interval.ms",
    "metrics.num.samples": "use statistics.interval.ms",
    "metrics.recording.level": "use statistics.interval.ms",
    "metrics.sample.window.ms": "use statistics.interval.ms",
    "auto.include.jmx.reporter": _NONE,
    "config.providers": "give the value through the environment",
    "interceptor.classes": _NONE,
    # consumers
    "key.deserializer": _FORMAT,
    "value.deserializer": _FORMAT,
    "max.poll.records": "use the stream's `slices: {max_records: ...}`",
    "fetch.max.wait.ms": "use fetch.wait.max.ms",
    "exclude.internal.topics": "use topic.blacklist",
    # producers
    "key.serializer": _FORMAT,
    "value.serializer": _FORMAT,
    "buffer.memory": "use queue.buffering.max.kbytes",
    "max.block.ms": _NONE,
    "max.request.size": "use message.max.bytes",
    "partitioner.class": "use partitioner",
    "partitioner.ignore.keys": "use partitioner",
    "partitioner.adaptive.partitioning.enable": "use partitioner",
    "partitioner.availability.timeout.ms": _NONE,
    "compression.gzip.level": "use compression.level",
    "compression.lz4.level": "use compression.level",
    "compression.zstd.level": "use compression.level",
    "metadata.max.idle.ms": "use topic.metadata.refresh.interval.ms",
}
