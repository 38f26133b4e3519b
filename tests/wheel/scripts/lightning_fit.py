"""lightning's Trainer, which finds that it has been started by torchrun."""
import logging
import os
import warnings

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
import lightning
import torch


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


lightning.seed_everything(3)
trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_steps=3, logger=False, enable_checkpointing=False,
                            enable_progress_bar=False, enable_model_summary=False)
module = Module()
trainer.fit(module, torch.utils.data.DataLoader(torch.randn(32, 4), batch_size=4))
print(f"{trainer.global_rank} {trainer.world_size} {trainer.global_step} {module.layer.weight.sum().item():.5f} "
      f"{os.environ['TORCHELASTIC_RUN_ID'] != ''}\n", end="", flush=True)
