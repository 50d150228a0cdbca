"""Failures that a user can mend: one sentence that says what is wrong and what to do."""


class PolyphraseError(Exception):
    """The base of every failure that this library raises on purpose.

    The command line prints the message on one line and exits with 2; a service answers 4xx with it.
    """


class BadInput(PolyphraseError):
    """A value or a file from the user that cannot be used: the message names it and the remedy."""


class MissingExtra(PolyphraseError):
    """An optional library that is not installed: the message names the extra that brings it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} is not installed: run pip install 'polyphrase[{extra}]'")


class PolyphraseWarning(UserWarning):
    """What a user should know though nothing failed; the command line prints it on one line."""


class NotPositiveDefinite(PolyphraseError):
    """A covariance that has no Cholesky factor even with the largest jitter."""
