"""What Holdfast costs and gains, measured against bare torch and its peers in one run. See README.md."""
