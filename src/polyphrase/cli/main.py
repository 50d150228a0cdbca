"""The command `polyphrase`: words and flags only; what they do is imported when they run."""

import contextlib
import sys
import warnings
from collections.abc import Iterator

import typer

from ..allocator import keep_big_buffers
from ..errors import PolyphraseError, PolyphraseWarning
from . import data, doctor, evaluate, generate, paraphrase, train

app = typer.Typer(
    name="polyphrase",
    help="Many different and good versions of a sentence.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.command("paraphrase")(paraphrase.paraphrase)
app.command("train")(train.train)
app.command("generate")(generate.generate)
app.add_typer(data.app, name="data")
app.command("evaluate")(evaluate.evaluate)
app.command("doctor")(doctor.doctor)


def main() -> None:
    """Run the command line; what a user can mend is one sentence and exit code 2."""
    keep_big_buffers()
    try:
        with _plain_warnings():
            app()
    except PolyphraseError as error:
        print(f"polyphrase: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Our own warnings as one line each, without the place in the code that they come from."""
    usual = warnings.formatwarning

    def line(
        message: Warning | str, category: type[Warning], filename: str, number: int, *rest: str
    ) -> str:
        if issubclass(category, PolyphraseWarning):
            return f"polyphrase: {message}\n"
        return usual(message, category, filename, number, *rest)

    warnings.formatwarning = line  # type: ignore[assignment] # typeshed names its last one
    try:
        yield
    finally:
        warnings.formatwarning = usual
