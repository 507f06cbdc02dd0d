"""The pages of docs/ that are written from the code: what it says of itself is what they say."""
