"""Merging while a model trains: the last states are kept, the training is left alone."""

import contextlib
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from .merge import merge_checkpoints, refuse_factors
from .sources import StateDict
from .weights import Curve, merge_weights


class CheckpointMerger:
    """Keep the last states of a model and merge them on demand.

    Args:
        curve: As in `merge_weights`.
        window: Merge duration in steps: window / interval states are merged.
        interval: Steps between two states.
        dtype: Of the floating-point tensors kept, such as torch.bfloat16 for half the memory; their own by default. The
            merge is summed in float32 and has the model's own types either way.
        device: Where they are kept; "cpu" spares the memory of the accelerator.
        **options: For the curve.

    Raises:
        ValueError: When window is no whole multiple of interval, or the curve is unknown.
    """

    def __init__(
        self,
        curve: Curve = "linear",
        window: int = 1000,
        interval: int = 100,
        *,
        dtype: torch.dtype | None = None,
        device: str | torch.device | None = None,
        **options: Any,
    ) -> None:
        if interval < 1 or window < interval or window % interval:
            raise ValueError(
                f"window = {window}, interval = {interval}: window must be a multiple of interval, both above 0"
            )
        merge_weights(curve, 1, **options)
        self.curve, self.window, self.interval, self.options = curve, window, interval, options
        self.dtype, self.device = dtype, device
        self._kinds: dict[str, torch.dtype] = {}
        self._kept: deque[tuple[int, dict[str, Tensor]]] = deque(maxlen=window // interval)

    @property
    def steps(self) -> list[int]:
        """The steps of the states that are kept, oldest first."""
        return [step for step, _ in self._kept]

    @property
    def bytes(self) -> int:
        """Memory that the states take, in bytes; tied tensors are kept once."""
        kept = {t.data_ptr(): t.numel() * t.element_size() for _, state in self._kept for t in state.values()}
        return sum(kept.values())

    def update(self, step: int, model: nn.Module) -> bool:
        """Keep the model's state if the step is a multiple of the interval; call it after every optimiser step.

        Args:
            step: Number of steps done; it must grow.
            model: The model.

        Returns:
            Whether the state was kept.

        Raises:
            ValueError: When the step is not above the last one, or the model holds factors of LoRA.
        """
        if self._kept and step <= self._kept[-1][0]:
            raise ValueError(f"step = {step}: the newest state is of step {self._kept[-1][0]}, steps must grow")
        if step % self.interval:
            return False
        state = model.state_dict()
        refuse_factors(state)
        tied = StateDict("model", state).shared()
        copies = {k: self._copy(v) for k, v in state.items() if k not in tied}
        self._kinds = {k: v.dtype for k, v in state.items()}
        self._kept.append((step, {k: copies[tied.get(k, k)] for k in state}))
        return True

    def _copy(self, value: Tensor) -> Tensor:
        dtype = self.dtype if self.dtype is not None and value.is_floating_point() else value.dtype
        return value.detach().to(device=self.device or value.device, dtype=dtype, copy=True)

    def merged_state_dict(self, curve: Curve | None = None, **options: Any) -> dict[str, Tensor]:
        """The merge of what is kept; fewer states than the window holds are merged as a shorter window.

        Args:
            curve: Another curve than the merger's; any number of them can be tried.
            **options: For that curve.

        Raises:
            RuntimeError: Before the first state is kept.
        """
        if not self._kept:
            raise RuntimeError(f"no state is kept yet: update(step, model) keeps one every {self.interval} steps")
        chosen, options = (self.curve, self.options) if curve is None else (curve, options)
        states = [state for _, state in self._kept]
        steps = self.steps if len(states) > 1 else None
        weights = merge_weights(chosen, None if steps else 0, steps=steps, **options)
        if self.dtype is None:
            merged = merge_checkpoints(states, weights, allow_negative=True)
            assert isinstance(merged, dict)
            return merged
        wide = torch.float64 if torch.float64 in self._kinds.values() else torch.float32
        merged = merge_checkpoints(states, weights, dtype=wide, allow_negative=True)
        assert isinstance(merged, dict)
        return {name: value.to(self._kinds[name]) for name, value in merged.items()}

    @contextlib.contextmanager
    def apply_to(self, model: nn.Module, curve: Curve | None = None, **options: Any) -> Iterator[nn.Module]:
        """Give the model its merged weights for the length of a ``with``; every bit is put back after.

        Args:
            model: The model.
            curve: As in `merged_state_dict`.
            **options: For that curve.
        """
        merged = self.merged_state_dict(curve, **options)
        saved = {k: v.detach().clone() for k, v in model.state_dict().items()}
        try:
            model.load_state_dict(merged)
            yield model
        finally:
            model.load_state_dict(saved)

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` needs to go on after a restart."""
        return {"window": self.window, "interval": self.interval, "kept": list(self._kept), "kinds": self._kinds}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up the states of another merger of the same window and interval.

        Args:
            state: From `state_dict`.

        Raises:
            ValueError: When window or interval differ.
        """
        for name in ("window", "interval"):
            if state[name] != getattr(self, name):
                raise ValueError(f"{name} = {state[name]} in the state, {getattr(self, name)} here")
        self._kinds = dict(state["kinds"])
        self._kept = deque(((int(step), dict(kept)) for step, kept in state["kept"]), maxlen=self._kept.maxlen)


class HierarchicalMerger:
    """Means over windows of 1, 2, 4, ... blocks of `interval` steps, in memory that grows with the logarithm (ours).

    Each level holds the mean of one finished block and at most one half of the next, as a binary counter does. Means of
    half-precision tensors are kept in float32.

    Args:
        interval: Steps between two states.
        levels: Number of window lengths: interval x 1, 2, 4, ..., 2^(levels - 1) steps.
    """

    def __init__(self, interval: int = 100, levels: int = 6) -> None:
        if interval < 1 or levels < 1:
            raise ValueError(f"interval = {interval}, levels = {levels}: at least 1 each is needed")
        self.interval, self.levels = interval, levels
        self._done: list[dict[str, Tensor] | None] = [None] * levels
        self._half: list[dict[str, Tensor] | None] = [None] * levels
        self._kinds: dict[str, torch.dtype] = {}

    def update(self, step: int, model: nn.Module) -> bool:
        """Take the model's state in if the step is a multiple of the interval.

        Args:
            step: Number of steps done.
            model: The model.

        Returns:
            Whether it was taken.
        """
        if step % self.interval:
            return False
        state = model.state_dict()
        refuse_factors(state)
        self._kinds = {k: v.dtype for k, v in state.items()}
        carry = {
            k: v.detach().to(torch.float32 if v.is_floating_point() and v.element_size() < 4 else v.dtype, copy=True)
            for k, v in state.items()
        }
        for level in range(self.levels):
            self._done[level] = carry
            waiting, self._half[level] = self._half[level], None
            if waiting is None:
                self._half[level] = carry
                break
            merged = merge_checkpoints([waiting, carry])
            assert isinstance(merged, dict)
            carry = merged
        return True

    def windows(self) -> dict[int, dict[str, Tensor]]:
        """Window length in steps to the mean over its newest finished block."""
        return {
            self.interval * 2**i: {k: v.to(self._kinds[k]) for k, v in state.items()}
            for i, state in enumerate(self._done)
            if state is not None
        }


class WSMAveragedModel(AveragedModel):
    """An `AveragedModel` that is the merge of the last states along a curve.

    Without a window the curve must be "linear", the running mean of all states, or "ema": one interpolation an update,
    as in torch. With a window the last `window` states are kept and merged when the model is called, or by `refresh`.

    Args:
        model: The model that trains.
        curve: As in `merge_weights`.
        window: Number of states that are merged; ``None`` for all.
        device: As in `AveragedModel`.
        use_buffers: As in `AveragedModel`; the statistics of batch normalisation want ``update_bn`` either way.
        **options: For the curve.

    Raises:
        ValueError: When another curve is to go without a window, an option is none of the curve's, or the model holds
            factors of LoRA.
    """

    def __init__(
        self,
        model: nn.Module,
        curve: Curve = "linear",
        window: int | None = None,
        device: Any = None,
        use_buffers: bool = False,
        **options: Any,
    ) -> None:
        average = None
        refuse_factors(name for name, _ in model.named_parameters())
        merge_weights(curve, 1, **options)  # its checks of curve and options
        if window is None:
            if curve == "ema":
                alpha = options.get("alpha", 0.2)

                def average(old: Tensor, new: Tensor, count: Tensor | int) -> Tensor:
                    return old.lerp(new, alpha) if old.is_floating_point() else new

            elif curve != "linear":
                raise ValueError(
                    f"curve = {curve!r}: without a window only 'linear' and 'ema' can be kept up step by step"
                )
        elif isinstance(window, bool) or not isinstance(window, int) or window < 1:
            raise ValueError(f"window = {window}: at least 1 state is needed")
        super().__init__(model, device=device, avg_fn=average, use_buffers=use_buffers)
        self.curve, self.window, self.options = curve, window, options
        self._states: deque[list[Tensor]] = deque(maxlen=window)
        self._stale = False

    def _averaged(self, model: nn.Module) -> list[Tensor]:
        buffers = list(model.buffers()) if self.use_buffers else []
        return [t.detach() for t in (*model.parameters(), *buffers)]

    def update_parameters(self, model: nn.Module) -> None:
        """Take the model's state in.

        Args:
            model: The model that trains.
        """
        if self.window is None:
            super().update_parameters(model)
            return
        self._states.append([t.clone() for t in self._averaged(model)])
        self.n_averaged += 1
        self._stale = True
        if not self.use_buffers:
            for own, new in zip(self.module.buffers(), model.buffers(), strict=True):
                own.detach().copy_(new.detach().to(own.device))

    def refresh(self) -> "WSMAveragedModel":
        """Merge what is kept into `module`; returns self. Calls, copies and `state_dict` do it by themselves."""
        if self._stale:
            weights = merge_weights(self.curve, len(self._states) - 1, **self.options)
            names = [str(i) for i in range(len(self._states[0]))]
            states = [dict(zip(names, state, strict=True)) for state in self._states]
            merged = merge_checkpoints(states, weights, allow_negative=True)
            assert isinstance(merged, dict)
            with torch.no_grad():
                for own, new in zip(self._averaged(self.module), merged.values(), strict=True):
                    own.copy_(new)
            self._stale = False
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The merged model's answer.

        Args:
            *args: For the model.
            **kwargs: For the model.
        """
        return self.refresh().module(*args, **kwargs)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The merged model's state.

        Args:
            *args: As in torch.
            **kwargs: As in torch.
        """
        self.refresh()
        return super().state_dict(*args, **kwargs)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        # The states of the window belong to the state, or a run that is resumed would merge less than it says.
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for i, state in enumerate(self._states if self.window is not None else ()):
            for j, tensor in enumerate(state):
                destination[f"{prefix}kept.{i}.{j}"] = tensor

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, metadata: Any, strict: bool, missing: list[str], *more: Any
    ) -> None:
        kept: dict[int, dict[int, Tensor]] = {}
        start = f"{prefix}kept."
        for key in [k for k in state_dict if k.startswith(start)] if self.window is not None else []:
            i, j = map(int, key.removeprefix(start).split("."))  # files may bring names in any order
            kept.setdefault(i, {})[j] = state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, *more)
        if self.window is not None:
            device = self.n_averaged.device
            states = ([kept[i][j].clone().to(device) for j in sorted(kept[i])] for i in sorted(kept))
            self._states = deque(states, maxlen=self.window)
            self._stale = bool(self._states)
            if int(self.n_averaged) > 0 and not kept:
                missing.append(f"{prefix}kept.0.0")
