"""What is said of URIs that cannot be an output."""

from __future__ import annotations

import re

import pytest

from ttsbatch.errors import SinkError
from ttsbatch.sinks.store import Store
from ttsbatch.uri import is_uri, shown


@pytest.mark.parametrize(
    ("uri", "name", "example"),
    [
        ("s3://", "s3://", "s3://bucket/run"),
        ("s3://?endpoint_override=127.0.0.1:9", "s3://", "s3://bucket/run"),
        ("mock:///", "mock://", "mock:///run"),
    ],
)
def test_a_uri_without_a_folder_is_named_with_one_that_has_it(
    uri: str, name: str, example: str
) -> None:
    said = f"{name}: names no folder; expected one such as {example}"
    with pytest.raises(SinkError, match=f"^{re.escape(said)}$"):
        Store(uri)
    assert is_uri(example)


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("s3://key:secret@bucket/run/?region=a", "s3://bucket/run"),
        ("s3://bucket//", "s3://bucket"),
        ("s3://", "s3://"),
        ("out/", "out"),
    ],
)
def test_a_shown_uri_keeps_its_scheme_and_no_key(uri: str, said: str) -> None:
    assert shown(uri) == said
