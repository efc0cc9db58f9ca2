"""What a stream says about itself: readings, the plain sentence drawn from them, and observers that follow them."""
