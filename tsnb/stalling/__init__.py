"""What would sharing give, measured before anything is shared: `tsnb.stalls(loader, train_step=...)`.

After DS-Analyzer (Mohan et al., "Analyzing and Mitigating Data Stalls in DNN Training", VLDB 2021, the CoorDL paper):
the loader alone, the model alone, both together; what both together lack is the stall. A short time of the same loader
served by `tsnb.serve`, alone and with the model, comes on top: a batch that is collated into shared memory costs less
than one of a plain DataLoader, and holds the model up less.

| module | what it does |
|---|---|
| `sharing` | pure: from counts to costs a sample, and from these to samples/s of k trials |
| `measuring` | runs loader and step for some seconds and counts, without disturbing their owner |
| `measured_code` | the user's loader and step meanwhile: random numbers put back; a step that raises is told |
| `silence` | says of a loader that gives no batch for long what it is doing |
| `reading` | which files a loader's samples are in, their share of the page cache, what the disk costs |
| `storage` | pure: paces at another share of the page cache, and on another disk |
| `sizing` | pure: vCPUs that a GPU needs, and prices |
| `serving` | serves a loader in this process, for a measurement |
| `contention` | what two loaders of the same data cost each other, and the start and memory of one |
| `intervals` | pure: how far each figure may be off |
| `asked` | the bounds of what may be asked; "what if": what was measured, with something else |
| `result` | `stalls`, and `Stalls`, which it returns |
| `sentences` | pure: the sentences, and what to do next; tables as text and HTML; plain values for JSON |
| `figures` | pure: paces, gains and sizes as text |

The package is not called `stalls`, because a submodule of that name would hide the function `tsnb.stalls`.
"""

from tsnb.stalling.asked import what_if
from tsnb.stalling.contention import LoaderContention, contention
from tsnb.stalling.result import Stalls, stalls
from tsnb.stalling.serving import FrozenCost
from tsnb.stalling.sharing import Computing, Loading, Sharing, Way
from tsnb.stalling.sizing import Need, Sizing
from tsnb.stalling.storage import Hits, Storage

__all__ = [
    "Computing",
    "FrozenCost",
    "Hits",
    "LoaderContention",
    "Loading",
    "Need",
    "Sharing",
    "Sizing",
    "Stalls",
    "Storage",
    "Way",
    "contention",
    "stalls",
    "what_if",
]
