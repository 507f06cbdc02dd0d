"""What the board tells over HTTP, from sessions on clusters in memory."""
