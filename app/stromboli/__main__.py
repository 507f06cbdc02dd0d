"""`python -m stromboli`, which is the `stromboli` command."""

from stromboli.cli import main

if __name__ == "__main__":
    main()
