"""Run the `holdfast` command line as `python -m controlplane`."""

from __future__ import annotations

import sys

from controlplane.cli.main import main

sys.exit(main())
