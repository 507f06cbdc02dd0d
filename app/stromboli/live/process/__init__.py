"""The process and its event loop: logs, rate limits, queues of tasks, garbage, and watchdogs."""
