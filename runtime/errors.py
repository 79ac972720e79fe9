"""Errors a user can act on: each message is one line that names the file and the fix."""


class HmerError(Exception):
    """Base of all errors caused by input; the CLI prints the message and exits, without a traceback.

    Attributes:
        exit_code: of the command line.
    """

    exit_code = 1


class InkError(HmerError):
    """An ink file (InkML or strokes JSON) cannot be read, or holds nothing that can be drawn."""


class PictureError(HmerError):
    """A picture cannot be read, or breaks a size limit."""


class BundleError(HmerError):
    """A bundle is incomplete, altered, unsafe, or newer than this runtime."""


class EngineError(HmerError):
    """An engine is missing, cannot run a graph, or gave something that is not a number."""


class ConfigError(HmerError):
    """A preset, an option or a combination of options is not valid."""


class DataError(HmerError):
    """A dataset folder, archive or caption file is missing or malformed."""


class StoppedError(HmerError):
    """Work that the user stopped; what was done is saved."""

    exit_code = 130  # as shells say it of Ctrl-C
