"""WSM in a transformers or TRL trainer: the run goes on at a constant rate, merged models come out beside it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from .online import CheckpointMerger
from .weights import Curve

CONSTANT = ("constant", "constant_with_warmup")


class WSMCallback(TrainerCallback):
    """Keep states every `save_steps`, and save their merge beside each checkpoint and at the end.

    The merged model is a normal checkpoint in ``<output_dir>/merged-<step>``. Training is not touched.

    Args:
        save_steps: Steps between two states.
        window: Merge duration in steps, a multiple of `save_steps`.
        curve: As in `merge_weights`.
        evaluate: An "anneal oracle": called with the model under merged weights at each evaluation, its numbers are
            logged as ``merged_<name>``.
        **options: For `CheckpointMerger`.

    Raises:
        ValueError: When the training starts with a schedule that decays.
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

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Refuse a schedule that decays: merging would decay twice.

        Args:
            args: The trainer's arguments.
            state: The trainer's state.
            control: Unused.
            **kwargs: Unused.
        """
        name = getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type)
        if name not in CONSTANT:
            raise ValueError(
                f"lr_scheduler_type = {name!r}: WSM needs one of {', '.join(CONSTANT)}; the merge is the decay"
            )

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Keep the state.

        Args:
            args: Unused.
            state: The trainer's state, with the step.
            control: Unused.
            **kwargs: With the model.
        """
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
        """Save the merged model beside the checkpoint.

        Args:
            args: With the output folder.
            state: The trainer's state.
            control: Unused.
            **kwargs: With the model.
        """
        self._save(args, state, kwargs["model"])

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
