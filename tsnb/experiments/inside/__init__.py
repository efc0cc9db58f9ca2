"""What runs in a trial's kernel: getting ready, logging, ending. The notebook never imports it."""
