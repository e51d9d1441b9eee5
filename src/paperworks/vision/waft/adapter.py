"""WAFT behind ptlflow's interface: a dictionary in, a dictionary out."""

from collections.abc import Mapping

from torch import Tensor, nn

from .model import FlowNetwork
from .uncertainty import FlowUncertainty


class WAFTPtlflow(nn.Module):
    """A flow network as ptlflow calls its models; ptlflow itself is not needed.

    Args:
        model: `WAFT` or `RAFT`.
        bgr: ptlflow's pictures are BGR, as OpenCV reads them; False for RGB.
        largest: Value of white; ptlflow's pictures lie within 0..1.
        tile: Size of tiles in evaluation mode, see `FlowNetwork.predict`.
    """

    def __init__(
        self, model: FlowNetwork, bgr: bool = True, largest: float = 1.0, tile: tuple[int, int] | None = None
    ) -> None:
        super().__init__()
        self.model, self.bgr, self.largest, self.tile = model, bgr, largest, tile

    def forward(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor | list[Tensor]]:
        """Estimate the flow between the two pictures of each sample.

        Args:
            inputs: "images" (b, 2, 3, h, w); in training mode "flows" (b, 1, 2, h, w) too.

        Returns:
            "flows" (b, 1, 2, h, w) in pixels. Without tiles also "flow_preds", the flow of each iteration
            (b, 2, h, w), and with a mixture "expected_error" (b, 1, 1, h, w), pixels of one component. In training
            mode with a truth also "nll", for `sequence_loss`.

        Raises:
            ValueError: "images" is missing or has another shape.
        """
        images = inputs.get("images")
        if images is None or images.ndim != 5 or images.shape[1:3] != (2, 3):
            shape = None if images is None else tuple(images.shape)
            raise ValueError(f"inputs['images'] has shape {shape}; expected (batch, 2, 3, height, width)")
        images = images * (255.0 / self.largest)
        if self.bgr:
            images = images.flip(2)
        one, two = images.unbind(1)
        if self.tile is not None and not self.training:
            return {"flows": self.model.predict(one, two, tile=self.tile)[:, None]}
        truth = inputs["flows"][:, 0] if self.training and "flows" in inputs else None
        out = self.model(one, two, flow_gt=truth)
        result: dict[str, Tensor | list[Tensor]] = {"flows": out.flows[-1][:, None], "flow_preds": out.flows}
        if out.info:
            known = FlowUncertainty(out.info[-1], self.model.var_min, self.model.var_max)
            result["expected_error"] = known.expected_error[:, None, None]
        if out.nll is not None:
            result["nll"] = out.nll
        return result
