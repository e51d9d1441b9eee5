"""Networks that several studies share, and real frozen encoders."""

import lazy_loader

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in {"", "paperworks"}:
            raise
        raise ImportError(f"kit.nets needs {missing!r}: pip install 'paperworks[vision]'", name=error.name) from error
