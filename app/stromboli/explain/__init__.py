"""Answers to users' questions, as data: why a job waits, how a queue got its share, what a change would do.

Pure like the engine: a session and a state go in, an answer comes out. Every proposal was tried on a fork of the state.
"""
