"""What runs in every background kernel: setting it up, and reporting back. The notebook never imports it."""
