from .adapter import WAFTPtlflow as WAFTPtlflow
from .classical import CLASSICAL as CLASSICAL
from .classical import dis_flow as dis_flow
from .classical import farneback_flow as farneback_flow
from .classical import ilk_flow as ilk_flow
from .classical import tvl1_flow as tvl1_flow
from .classical import zero_flow as zero_flow
from .encoders import DepthAnything as DepthAnything
from .encoders import Encoder as Encoder
from .encoders import SideNetwork as SideNetwork
from .encoders import denormalise as denormalise
from .encoders import normalise as normalise
from .files import colour_wheel as colour_wheel
from .files import flow_to_image as flow_to_image
from .files import read_flo as read_flo
from .files import read_kitti_png as read_kitti_png
from .files import write_flo as write_flo
from .files import write_kitti_png as write_kitti_png
from .indexing import INDEXING as INDEXING
from .indexing import AllPairs as AllPairs
from .indexing import ImageWarp as ImageWarp
from .indexing import LocalVolume as LocalVolume
from .indexing import NoWarp as NoWarp
from .indexing import Warp as Warp
from .losses import mixture_laplace_nll as mixture_laplace_nll
from .losses import mixture_parameters as mixture_parameters
from .losses import sequence_loss as sequence_loss
from .metrics import displacement_report as displacement_report
from .metrics import epe as epe
from .metrics import fl_all as fl_all
from .metrics import motion_boundary as motion_boundary
from .metrics import px_outlier as px_outlier
from .metrics import wauc as wauc
from .model import RAFT as RAFT
from .model import WAFT as WAFT
from .model import FlowNetwork as FlowNetwork
from .model import FlowOutput as FlowOutput
from .official import load_official as load_official
from .official import load_resnet_stages as load_resnet_stages
from .official import load_vit_blocks as load_vit_blocks
from .official import official_waft as official_waft
from .official import our_name as our_name
from .synthetic import MOTIONS as MOTIONS
from .synthetic import FlowPair as FlowPair
from .synthetic import MotionModel as MotionModel
from .synthetic import SyntheticFlowDataset as SyntheticFlowDataset
from .synthetic import make_pair as make_pair
from .tiling import tile_corners as tile_corners
from .tiling import tiled as tiled
from .training import fit as fit
from .training import make_optimizer as make_optimizer
from .uncertainty import FlowUncertainty as FlowUncertainty
from .uncertainty import calibrate as calibrate
from .updates import UPDATES as UPDATES
from .updates import ConvGRU as ConvGRU
from .updates import PointwiseUpdate as PointwiseUpdate
from .updates import ResNetUpdate as ResNetUpdate
from .updates import ViTUpdate as ViTUpdate
from .upsample import convex_upsample as convex_upsample
from .vit import VIT_CONFIGS as VIT_CONFIGS
from .vit import DINOv2 as DINOv2
from .vit import ViTConfig as ViTConfig
from .warp import backward_warp as backward_warp
from .warp import occlusion_mask as occlusion_mask

__all__ = [
    "CLASSICAL",
    "INDEXING",
    "MOTIONS",
    "RAFT",
    "UPDATES",
    "VIT_CONFIGS",
    "WAFT",
    "AllPairs",
    "ConvGRU",
    "DINOv2",
    "DepthAnything",
    "Encoder",
    "FlowNetwork",
    "FlowOutput",
    "FlowPair",
    "FlowUncertainty",
    "ImageWarp",
    "LocalVolume",
    "MotionModel",
    "NoWarp",
    "PointwiseUpdate",
    "ResNetUpdate",
    "SideNetwork",
    "SyntheticFlowDataset",
    "ViTConfig",
    "ViTUpdate",
    "WAFTPtlflow",
    "Warp",
    "backward_warp",
    "calibrate",
    "colour_wheel",
    "convex_upsample",
    "denormalise",
    "dis_flow",
    "displacement_report",
    "epe",
    "farneback_flow",
    "fit",
    "fl_all",
    "flow_to_image",
    "ilk_flow",
    "load_official",
    "load_resnet_stages",
    "load_vit_blocks",
    "make_optimizer",
    "make_pair",
    "mixture_laplace_nll",
    "mixture_parameters",
    "motion_boundary",
    "normalise",
    "occlusion_mask",
    "official_waft",
    "our_name",
    "px_outlier",
    "read_flo",
    "read_kitti_png",
    "sequence_loss",
    "tile_corners",
    "tiled",
    "tvl1_flow",
    "wauc",
    "write_flo",
    "write_kitti_png",
    "zero_flow",
]
