"""Language models that run on a laptop, and what the studies need of them."""

import lazy_loader

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in {"", "paperworks"}:
            raise
        extra = {"trl": "posttraining", "inspect_ai": "evaluation"}.get(missing, "llm")
        raise ImportError(f"kit.lm needs {missing!r}: pip install 'paperworks[{extra}]'", name=error.name) from error
