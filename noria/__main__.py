"""`python -m noria` is the `noria` command."""

from noria.cli import main

main()
