"""Answers to people's questions, as data: why a job waits, how a queue got its share, what would be if.

Pure like the engine: a session and a state come in, an answer goes out. Whatever is proposed was tried on a fork of the
state.
"""
