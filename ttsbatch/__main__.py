"""`python -m ttsbatch` is the console command."""

from ttsbatch.cli.app import main

if __name__ == "__main__":
    main()
