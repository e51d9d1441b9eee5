"""Bodies that move, collide and break, and how to draw them."""
