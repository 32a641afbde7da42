"""Ask a coordinator or its journal, and show the answer."""
