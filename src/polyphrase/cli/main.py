"""The command `polyphrase`: words and flags only; what they do is imported when they run."""

import sys

import typer

from ..allocator import keep_big_buffers
from ..errors import PolyphraseError
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
        app()
    except PolyphraseError as error:
        print(f"polyphrase: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(141)
