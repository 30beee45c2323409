"""Start the program: `python3 -m nhc_adapters.node.hand`."""

from nhc_adapters.node.hand.program import main

raise SystemExit(main())
