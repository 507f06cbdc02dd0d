"""Objects that admission keeps from being created."""


class ForbiddenError(Exception):
    """An object that a LimitRange or ResourceQuota of its namespace keeps from being created, with advice."""

    def __init__(self, by: str, problem: str, remedy: str) -> None:
        super().__init__(f"{by} forbids it: {problem} ({remedy})")
