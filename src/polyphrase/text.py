"""The normal form of a text: what stays of it when case, punctuation and spacing are ignored."""

import unicodedata


class _Folding(dict[int, str]):
    """Code points to what stands for them, filled as they are met: `str.translate` asks here."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        ignored = character.isspace() or unicodedata.category(character)[0] in "PZC"
        kept = self[code] = "" if ignored else character
        return kept


_FOLDING = _Folding()


def normal_form(text: str) -> str:
    """The text in folded case without punctuation, spacing and control characters.

    Two texts with one normal form differ in nothing that a reader would call another wording.
    Symbols (a currency sign, an emoji) and combining marks stay.
    """
    return text.casefold().translate(_FOLDING)
