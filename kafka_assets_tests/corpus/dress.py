"""One value, written into records in several ways: the verdict must not depend on the way."""

from __future__ import annotations

WAYS = ("compact", "spaced", "crowded", "after others")


def record(column: str, token: str, *, way: str) -> bytes:
    text = {
        "compact": f'{{"{column}":{token}}}',
        "spaced": f' {{ "{column}" : {token} }}\n',
        "crowded": f'{{"more":{{"a":[1,"}}"]}},"{column}":{token},"last":"\\u00e9 {{}}"}}',
        "after others": f'{{"undeclared":0,"{column}":{token}}}',
    }
    return text[way].encode()
