"""The version, apart from the package root so that no module has to import that."""

__version__ = "0.1.0"
