"""`python -m driftline`, which is also how torchrun starts it."""

from driftline.cli import main

if __name__ == "__main__":
    main()
