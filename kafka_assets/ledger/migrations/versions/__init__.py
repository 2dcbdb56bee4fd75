"""One module for each revision; what one has released never changes again."""
