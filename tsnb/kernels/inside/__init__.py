"""What runs in a background kernel: setting it up, and reporting back. Never imported by the notebook itself."""
