"""`python -m arb.cli`."""

from arb.cli import main

raise SystemExit(main())
