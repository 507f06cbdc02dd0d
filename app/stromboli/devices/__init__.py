"""Cards of nodes and what pods hold of them, for plugins; virtual cards are HAMi's."""
