"""What the dashboard serves over HTTP, from sessions on clusters in memory."""
