"""``python -m lo2io``: the same as the command."""

from lo2io.cli import main

main()
