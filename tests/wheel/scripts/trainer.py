"""transformers' Trainer: a small net of its own, three steps, evaluated."""
import os
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from transformers import Trainer, TrainingArguments


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 2)

    def forward(self, x, labels=None):
        logits = self.layer(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


torch.manual_seed(0)
data = [{"x": torch.randn(6), "labels": i % 2} for i in range(24)]
with tempfile.TemporaryDirectory() as folder:
    settings = {"output_dir": folder, "max_steps": 3, "per_device_train_batch_size": 4, "report_to": "none", "logging_steps": 1,
                "use_cpu": True, "disable_tqdm": True, "save_strategy": "no", "seed": 1}
    trainer = Trainer(model=Net(), args=TrainingArguments(**settings), train_dataset=data, eval_dataset=data)
    result = trainer.train()
    figures = trainer.evaluate()
    print(f"rank {trainer.args.process_index} of {trainer.args.world_size}: {result.training_loss:.5f} {figures['eval_loss']:.5f}\n",
          end="", flush=True)
torch.distributed.destroy_process_group()
