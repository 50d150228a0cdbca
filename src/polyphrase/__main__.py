"""`python -m polyphrase`."""

from .cli.main import main

main()
