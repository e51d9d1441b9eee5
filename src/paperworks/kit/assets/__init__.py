"""Real data and models: the one place where they come from.

`assets.toml` declares each asset with its licences, size, checksum and sources. `open_asset` finds it on this machine,
`fetch` gets it.
Importing this package loads neither numpy nor any client of a registry.
"""

from paperworks.kit.assets.catalog import Asset, File, Source, catalog
from paperworks.kit.assets.derived import derive
from paperworks.kit.assets.digits8x8 import load_digits8x8
from paperworks.kit.assets.emoji import Emoji, load_emoji
from paperworks.kit.assets.errors import AssetError, AssetMissing, CacheError, CatalogError, FetchError, UnknownAsset
from paperworks.kit.assets.letter import load_letter
from paperworks.kit.assets.mnist5k import load_mnist5k
from paperworks.kit.assets.photographs import Motorcycle, load_motorcycle, load_photographs
from paperworks.kit.assets.store import Status, cache_folder, describe, fetch, fetch_all, open_asset, size_text, status
from paperworks.kit.assets.wink_vectors import load_wink_vectors
from paperworks.kit.assets.wordnet import load_wordnet
from paperworks.kit.assets.zoo import Zoo, load_zoo

__all__ = [
    "Asset",
    "AssetError",
    "AssetMissing",
    "CacheError",
    "CatalogError",
    "Emoji",
    "FetchError",
    "File",
    "Motorcycle",
    "Source",
    "Status",
    "UnknownAsset",
    "Zoo",
    "cache_folder",
    "catalog",
    "derive",
    "describe",
    "fetch",
    "fetch_all",
    "load_digits8x8",
    "load_emoji",
    "load_letter",
    "load_mnist5k",
    "load_motorcycle",
    "load_photographs",
    "load_wink_vectors",
    "load_wordnet",
    "load_zoo",
    "open_asset",
    "size_text",
    "status",
]
