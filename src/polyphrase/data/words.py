"""Text to words and back, without loss."""

import re
from collections.abc import Iterable

JOINER = "￭"
"""Marks the side on which a token touches its neighbour."""

_WORD = re.compile(
    r"https?://\S+"
    r"|[@#]\w+"
    r"|(?:[^\W\d_]\.){2,}"  # U.S.
    r"|\d+(?:[.,:]\d+)*"
    r"|(?P<clitic>['’](?:s|t|re|ve|ll|d|m)\b)"
    r"|[^\W\d]\w*"
    r"|(?P<mark>([^\w\s])\3*)",
    re.IGNORECASE,
)


def tokenise(text: str, lowercase: bool = False) -> list[str]:
    """The words and punctuation marks of a text.

    A token that touches its neighbour carries a joiner on that side, the mark rather than the word:
    `"Hi," she said.` becomes `"￭`, `Hi`, `￭,`, `￭"`, `she`, `said`, `￭.`. So a word is one token
    wherever it stands, and `detokenise` gives the text back, with its white space made single.
    """
    text = " ".join(text.replace(JOINER, "■").split())
    if lowercase:
        text = text.lower()
    tokens: list[str] = []
    end, after_mark = -1, False
    for match in _WORD.finditer(text):
        token, is_mark = match[0], match["mark"] is not None
        if match.start() == end:
            if after_mark and not is_mark and match["clitic"] is None:
                tokens[-1] += JOINER
            else:
                token = JOINER + token
        tokens.append(token)
        end, after_mark = match.end(), is_mark
    return tokens


def detokenise(tokens: Iterable[str]) -> str:
    """The text whose tokens these are."""
    text, touching = "", True
    for token in tokens:
        left = token.startswith(JOINER)
        right = token.endswith(JOINER)
        if not (touching or left):
            text += " "
        text += token.strip(JOINER)
        touching = right
    return text
