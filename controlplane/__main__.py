"""`python -m controlplane` is `holdfast`."""

from __future__ import annotations

import sys

from controlplane.cli.main import main

sys.exit(main())
