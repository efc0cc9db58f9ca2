"""Trainers of other packages inside trials: fetched with the consumer that they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tsnb.errors import TsnbError
from tsnb.experiments import run_cell
from tsnb.serving import serve

pytestmark = [pytest.mark.system, pytest.mark.slow]

LIGHTNING = """
import lightning, torch, tsnb
class Lit(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(1, 1)
    def training_step(self, batch, _): return self.net(batch).sum()
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=0.01)
quiet = dict(accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False)
trainer = lightning.Trainer(max_epochs=1, enable_checkpointing=False, **quiet)
trainer.fit(Lit(), tsnb.attach())
steps = trainer.global_step
"""

BEST = """
keep = lightning.pytorch.callbacks.ModelCheckpoint(save_last=True)
quiet["logger"] = True
trainer = lightning.Trainer(max_epochs=1, default_root_dir=tsnb.folder(), callbacks=[keep], **quiet)
model = Lit()
trainer.fit(model, tsnb.attach())
trainer.save_checkpoint(tsnb.folder() / "last.ckpt")
files = keep.last_model_path, trainer.log_dir
again = torch.load(keep.last_model_path, weights_only=False)["state_dict"]
same = all(torch.equal(value, again[name]) for name, value in model.state_dict().items())
"""

HUGGING = """
import torch, transformers, tsnb
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(1, 1)
    def forward(self, x): return {"loss": self.net(x).sum()}
class Shared(transformers.Trainer):
    loader = None
    def get_train_dataloader(self):
        self.loader = tsnb.attach()
        return self.loader
arguments = transformers.TrainingArguments(OUT, num_train_epochs=1, use_cpu=True, report_to=[], disable_tqdm=True,
    save_strategy="no", logging_strategy="no")
trainer = Shared(Net(), arguments, train_dataset=[0] * 8)
trainer.train()
steps = trainer.state.global_step
"""


@pytest.mark.parametrize(("package", "cell"), [("lightning", LIGHTNING), ("transformers", HUGGING)])
def test_a_trainer_that_holds_its_consumer_is_fetched(
    package: str, cell: str, page: Any, tmp_path: Path
) -> None:
    """With what it has learnt; its loader is a closed stand-in that says what to do."""
    pytest.importorskip(package)
    batches: list[Any] = [torch.ones(2, 1)] * 4 if package == "lightning" else [{"x": torch.ones(2, 1)}] * 4
    with serve(batches, name="few"):
        trial = run_cell("a", cell.replace("OUT", repr(str(tmp_path))), {}, outlet=page, stream="few")
        trainer, steps = trial.wait(300)["trainer", "steps"]
    assert steps == 4
    loader = trainer.loader if package == "transformers" else trainer.fit_loop._combined_loader.flattened[0]
    with pytest.raises(TsnbError, match="Attach in the process that needs it"):
        iter(loader)


HUGGING_BEST = """
trainer.save_model(tsnb.folder())
files = [str(path) for path in tsnb.folder().iterdir()]
loaded = safetensors.torch.load_file(tsnb.folder() / "model.safetensors")
same = all(torch.equal(value, loaded[name]) for name, value in trainer.model.state_dict().items())
"""


@pytest.mark.parametrize("package", ["lightning", "transformers"])
def test_trainers_that_run_side_by_side_keep_their_files_apart(package: str, page: Any) -> None:
    """Each has its checkpoints, its `version_0`, and loads what it has saved, with `tsnb.folder()` as its directory."""
    pytest.importorskip(package)
    before, _, _ = LIGHTNING.partition("trainer = ")
    cell = before + BEST if package == "lightning" else "import safetensors.torch" + HUGGING + HUGGING_BEST
    cell = cell.replace("OUT", "tsnb.folder()")
    batches: list[Any] = [torch.ones(2, 1)] * 4 if package == "lightning" else [{"x": torch.ones(2, 1)}] * 4
    with serve(batches, name="few", late_join=1.0):
        trials = [run_cell(name, cell, {}, outlet=page, stream="few", seed=n) for n, name in enumerate("ab")]
        got = [trial.wait(300)["files", "same"] for trial in trials]
    for trial, (files, same) in zip(trials, got, strict=True):
        assert same
        assert all(str(trial.life.artifacts_path) in file for file in files)
    assert "both write" not in page.text
