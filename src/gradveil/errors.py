"""The one exception a user is meant to see."""


class GradveilError(Exception):
    """A problem the user can mend.

    The message is one line: what was expected, what was got, what to do. The command line prints it and exits with code 2.
    """


class NotFinite(GradveilError):
    """A gradient or a score that is not a number."""
