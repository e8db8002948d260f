"""`python -m veena.cli` is `veena`: for starting it with the interpreter that runs already."""

from __future__ import annotations

from veena.cli import main

if __name__ == "__main__":
    main()
