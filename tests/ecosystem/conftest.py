"""Tests with other packages: nothing is fetched, and their messages for people are kept down."""

from __future__ import annotations

import os

os.environ.update(
    HF_HUB_OFFLINE="1",
    HF_DATASETS_OFFLINE="1",
    HF_HUB_DISABLE_TELEMETRY="1",
    HF_DATASETS_DISABLE_PROGRESS_BARS="1",
    TOKENIZERS_PARALLELISM="false",
    TORCHDATA_DISABLE_USAGE_LOGGING="1",
)
