"""The one exception a user is meant to see."""


class GradveilError(Exception):
    """A problem the user can mend.

    The message is one line that says what was got and what would do; the command line prints it and exits with code 2.
    """
