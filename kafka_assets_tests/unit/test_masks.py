from __future__ import annotations

import pytest

from kafka_assets.masks import UNREADABLE, masked_links, masked_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///ledger.db", "sqlite:///ledger.db"),
        ("sqlite:////data/with@sign/a b.db", "sqlite:////data/with@sign/a b.db"),
        ("postgresql://me:CANARY@h:5432/d", "postgresql://me:***@h:5432/d"),
        ("postgresql+psycopg://me@h/d?sslmode=require", "postgresql+psycopg://me@h/d?sslmode=require"),
        ("postgresql://me:CA:NA?R/Y#@h/d", "postgresql://me:***@h/d"),
        ("postgresql://127.0.0.1:1/d?user=me&password=CANARY", "postgresql://127.0.0.1:1/d?user=me&password=***"),
        ("postgresql://h/d?user=a@b&password=CANARY", "postgresql://h/d?user=a@b&password=***"),
        ("postgresql://a,b:5433,[::1]:5/d?sslpassword=CANARY", "postgresql://a,b:5433,[::1]:5/d?sslpassword=***"),
        ("mysql://h/d?passwd=CANARY&ssl_ca=/ca.pem", "mysql://h/d?passwd=***&ssl_ca=/ca.pem"),
        ("mysql://h/d?CANARY", "mysql://h/d?***"),
        ("sc://localhost:15002/;token=CANARY;user_id=me", "sc://localhost:15002/;token=***;user_id=me"),
        ("SC://h/;Token=CANARY;x-api-key=CANARY", "SC://h/;Token=***;x-api-key=***"),
        ("https://h/;token=CANARY", "https://h/;token=***"),
        ("https://CANARY@h/x", "https://***@h/x"),
        ("k8s://https://h:443", "k8s://https://h:443"),
        ("postgresql:me:CANARY@h/d", UNREADABLE),
        ("postgresql:/me:CANARY@h/d", UNREADABLE),
        ("me:CANARY@h", UNREADABLE),
        ("sc:h/;token=CANARY", UNREADABLE),
        ("postgresql://me:CA@NARY@h/d", UNREADABLE),
        ("postgresql://h/me:CANARY@h/d", UNREADABLE),
        ("postgresql://me:CANARY/d", UNREADABLE),
        ("CANARY", UNREADABLE),
        ("", UNREADABLE),
    ],
)
def test_a_url_is_shown_without_what_may_be_secret(url: str, shown: str) -> None:
    assert masked_url(url) == shown
    assert "CANARY" not in shown


def test_what_another_program_says_is_shown_with_its_urls_masked() -> None:
    said = "Server access error at url http://u:CANARY@127.0.0.1:1/a/b.pom (refused), http://u:CANARY@h/c?k=CANARY"
    assert masked_links(said) == (
        "Server access error at url http://u:***@127.0.0.1:1/a/b.pom (refused), http://u:***@h/c?k=***"
    )
