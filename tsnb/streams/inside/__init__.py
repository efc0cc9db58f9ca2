"""What runs in a producer's kernel. The notebook never imports it."""
