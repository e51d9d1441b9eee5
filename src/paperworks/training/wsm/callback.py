"""WSM in a transformers or TRL trainer: the run goes on at a constant rate, merged models come out beside it."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from .online import CheckpointMerger
from .sources import whole_file
from .weights import Curve

CONSTANT = ("constant", "constant_with_warmup")
STATES = "wsm_states.pt"


def _checkpoint(args: TrainingArguments, state: TrainerState) -> Path:
    """Where the trainer saves at this step."""
    return Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"


class WSMCallback(TrainerCallback):
    """Keep states every `save_steps`, and save their merge beside each checkpoint and at the end.

    The merged model is a normal checkpoint in ``<output_dir>/merged-<step>``. Training is not touched. The states that
    are kept are saved in each checkpoint as well (``wsm_states.pt``), so that a run that is resumed merges the same.

    Args:
        save_steps: Steps between two states.
        window: Merge duration in steps, a multiple of `save_steps`.
        curve: As in `merge_weights`.
        evaluate: An "anneal oracle": called with the model under merged weights at each evaluation, its numbers are
            logged as ``merged_<name>``.
        **options: For `CheckpointMerger`.

    Raises:
        ValueError: When the training starts with a schedule that decays, or the rate falls in mid-run.
    """

    def __init__(
        self,
        save_steps: int,
        window: int,
        curve: Curve = "linear",
        evaluate: Callable[[nn.Module], dict[str, float]] | None = None,
        **options: Any,
    ) -> None:
        self.merger = CheckpointMerger(curve, window, save_steps, **options)
        self.evaluate = evaluate
        self._rate = 0.0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Refuse a schedule that decays: merging would decay twice. Take up the states of a run that is resumed.

        Args:
            args: The trainer's arguments.
            state: The trainer's state; above step 0 the run is resumed.
            control: Unused.
            **kwargs: Unused.
        """
        name = getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type)
        if name not in CONSTANT:
            raise ValueError(
                f"lr_scheduler_type = {name!r}: WSM needs one of {', '.join(CONSTANT)}; the merge is the decay"
            )
        self._rate = 0.0
        if state.global_step > 0 and not self.merger.steps:
            resumed = args.resume_from_checkpoint
            folder = resumed if isinstance(resumed, str) else _checkpoint(args, state)
            file = Path(folder) / STATES
            if file.exists():
                self.merger.load_state_dict(torch.load(file, weights_only=True))
            else:
                warnings.warn(f"{file} is missing: the window begins anew at step {state.global_step}", stacklevel=2)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Keep the state.

        Args:
            args: Unused.
            state: The trainer's state, with the step.
            control: Unused.
            **kwargs: With the model and the optimiser.

        Raises:
            ValueError: When the rate has fallen, as by a schedule that was given to the trainer itself.
        """
        optimiser = kwargs.get("optimizer")
        if optimiser is not None:
            rate = float(max(group["lr"] for group in optimiser.param_groups))
            if rate < self._rate * (1 - 1e-6):
                raise ValueError(
                    f"the learning rate fell from {self._rate:.3g} to {rate:.3g} at step {state.global_step}: "
                    "WSM needs a constant one after the warm-up; the merge is the decay"
                )
            self._rate = rate
        if not self.merger.steps or state.global_step > self.merger.steps[-1]:
            self.merger.update(state.global_step, kwargs["model"])

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Log what the merged model does.

        Args:
            args: Unused.
            state: The trainer's state, whose history gets the numbers.
            control: Unused.
            **kwargs: With the model.
        """
        if self.evaluate is not None and self.merger.steps:
            with self.merger.apply_to(kwargs["model"]) as model:
                numbers = self.evaluate(model)
            state.log_history.append(
                {"step": state.global_step, **{f"merged_{k}": float(v) for k, v in numbers.items()}}
            )

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Save the merged model beside the checkpoint, and the states in it.

        Args:
            args: With the output folder.
            state: The trainer's state.
            control: Unused.
            **kwargs: With the model.
        """
        self._save(args, state, kwargs["model"])
        folder = _checkpoint(args, state)
        if state.is_world_process_zero and folder.is_dir():
            with whole_file(folder / STATES) as temporary:
                torch.save(self.merger.state_dict(), temporary)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Save the merged model at the end.

        Args:
            args: With the output folder.
            state: The trainer's state.
            control: Unused.
            **kwargs: With the model.
        """
        self._save(args, state, kwargs["model"])

    def _save(self, args: TrainingArguments, state: TrainerState, model: nn.Module) -> None:
        if self.merger.steps and state.is_world_process_zero:
            folder = Path(args.output_dir) / f"merged-{state.global_step}"
            with self.merger.apply_to(model):
                model.save_pretrained(folder)  # type: ignore[operator]
