"""What stays of a text when case, punctuation and spacing are ignored."""

import pytest

from polyphrase.text import normal_form


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("Hello , World !", "helloworld"),
        ("“Straße”…", "strasse"),
        ("a\u00a0b\u200bc\u3000d", "abcd"),
        ("$5 ≠ 5€ 😀", "$5≠5€😀"),
        ("नमस्ते।", "नमस्ते"),
        ("...", ""),
    ],
)
def test_the_normal_form(text: str, form: str) -> None:
    assert normal_form(text) == form
