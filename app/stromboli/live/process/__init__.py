"""The process and its event loop: logs, rate limits, queues of tasks, garbage, and what watches over them."""
