"""`python -m stromboli.cli`."""

from stromboli.cli import main

if __name__ == "__main__":
    main()
