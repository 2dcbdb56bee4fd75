"""Settings as they may be printed: no password, no token, nothing that is not known to be harmless."""

from __future__ import annotations

import re
from collections.abc import Mapping

MASK = "***"
UNREADABLE = f"{MASK} (not shown: it does not read as a URL, and may hold a secret)"

_HOST = r"(?:[\w.\-]*|\[[0-9A-Fa-f:.]+(?:%\w+)?\])(?::\d*)?"
_URL = re.compile(
    r"(?P<scheme>(?:k8s://)?[A-Za-z][\w+.\-]*)://"
    r"(?:(?P<user>[^:@/?#;\s]*)(?P<password>:[^@]*)?@)?"
    rf"(?P<hosts>{_HOST}(?:,{_HOST})*)"
    r"(?P<path>/[^?#;]*)?"
    r"(?P<parameters>;[^?#]*)?"
    r"(?:\?(?P<query>[^#]*))?"
)
_WITHOUT_HOST = ("sqlite",)
"""Of these an `@` in what follows belongs to a file's name."""
_USERS = ("postgres", "mysql", "mariadb", "oracle", "mssql", "sqlite")
"""Of these a name alone is a user's; elsewhere it may be a token."""
_HARMLESS = {
    *("host", "hostaddr", "port", "dbname", "user", "application_name", "client_encoding", "charset", "timeout"),
    *("connect_timeout", "read_timeout", "write_timeout", "target_session_attrs", "load_balance_hosts", "unix_socket"),
    *("sslmode", "sslrootcert", "sslcert", "sslkey", "sslnegotiation", "channel_binding", "gssencmode"),
    *("keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout", "local_infile"),
    *("ssl_ca", "ssl_capath", "ssl_cert", "ssl_key", "ssl_cipher", "ssl_check_hostname", "ssl_disabled"),
    # Of Spark Connect. The others go to the server as headers, so any of them can be a key.
    *("use_ssl", "user_id", "user_agent"),
}
"""Parameters whose values may be shown; of all others only the name is."""
_SECRET = ("password", "passphrase", "secret", "key.pem", "oauthbearer.config", "jaas.config")
_LINK = re.compile(r"\b[A-Za-z][\w+.\-]*://[^\s'\"<>]*")


def masked_url(url: str) -> str:
    """The URL without its secrets; what does not read as one is not shown at all."""
    found = _URL.fullmatch(url.strip())
    if found is None:
        return UNREADABLE
    scheme, user, path = found["scheme"], found["user"], found["path"] or ""
    if "@" in path and not scheme.startswith(_WITHOUT_HOST):
        return UNREADABLE  # a password with a slash in it would stand there
    login = ""
    if found["password"] is not None:
        login = f"{user}:{MASK}@"
    elif user is not None:
        login = f"{user if scheme.startswith(_USERS) else MASK}@"
    parameters = "".join(f";{_masked(one)}" for one in (found["parameters"] or "")[1:].split(";") if one)
    query = "&".join(_masked(one) for one in (found["query"] or "").split("&") if one)
    return f"{scheme}://{login}{found['hosts']}{path}{parameters}" + (f"?{query}" if query else "")


def masked_address(address: str) -> str:
    """The address of a service: a URL, or just a host and its port."""
    return masked_url(address) if "://" in address or not re.fullmatch(rf"{_HOST}", address) else address


def masked_links(text: str) -> str:
    """A text of another program's, with each URL in it masked."""
    return _LINK.sub(lambda found: masked_url(found[0]), text)


def masked_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """A Kafka client's properties without the values of those that hold secrets."""
    return {name: MASK if is_secret(name) else value for name, value in properties.items()}


def is_secret(name: str) -> bool:
    """Whether a Kafka client's property of this name holds a secret."""
    return any(part in name for part in _SECRET)


def _masked(parameter: str) -> str:
    name, equals, value = parameter.partition("=")
    if not equals or not re.fullmatch(r"[\w.\-]+", name):
        return MASK
    return f"{name}={value if name in _HARMLESS else MASK}"
