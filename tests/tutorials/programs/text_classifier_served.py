"""A text classifier with Hugging Face's Trainer: a fast tokenizer pads each batch in the collate function."""

import json

import numpy as np
import torch
import tsnb.integrations.transformers
from seen import Seen
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils.data import DataLoader, Dataset
from transformers import (
    DistilBertConfig,
    DistilBertForSequenceClassification,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)

GOOD, BAD = ["fine", "lovely", "great", "warm"], ["dull", "poor", "cold", "weak"]
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0}
seen = Seen()


class Reviews(Dataset):
    """Short reviews, of one word of praise or blame among others."""

    def __init__(self, first, count):
        self.first, self.count = first, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        random = np.random.default_rng(self.first + index)
        words = random.choice(["the", "film", "is", "a", "play", "and"], size=random.integers(3, 12)).tolist()
        label = int(random.integers(2))
        words.insert(int(random.integers(len(words))), str(random.choice([BAD, GOOD][label])))
        return {"text": " ".join(words), "label": label}


def make_tokenizer():
    words = ["[PAD]", "[UNK]", "the", "film", "is", "a", "play", "and", *GOOD, *BAD]
    tokenizer = Tokenizer(
        models.WordLevel({word: code for code, word in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")


tokenizer = make_tokenizer()


def collate(rows):
    batch = tokenizer([row["text"] for row in rows], padding=True, return_tensors="pt")
    batch["labels"] = torch.tensor([row["label"] for row in rows])
    return batch


def make_loader():
    return DataLoader(Reviews(0, 240), batch_size=16, collate_fn=collate)


class ReviewTrainer(Trainer):
    def get_train_dataloader(self):
        return tsnb.attach().as_dataloader()

    def compute_loss(self, model, inputs, *args, **kwargs):
        if model.training:
            seen(dict(inputs))
        return super().compute_loss(model, inputs, *args, **kwargs)


def accuracy(predictions):
    return {"accuracy": float((predictions.predictions.argmax(1) == predictions.label_ids).mean())}


def train(lr):
    set_seed(0)
    config = DistilBertConfig(
        vocab_size=len(tokenizer), dim=32, hidden_dim=64, n_layers=1, n_heads=2, **NO_DROPOUT
    )
    arguments = TrainingArguments(
        "reviews", num_train_epochs=3, learning_rate=lr, eval_strategy="epoch", logging_steps=5,
        save_strategy="no", report_to="none", disable_tqdm=True, use_cpu=True, remove_unused_columns=False,
    )  # fmt: skip
    trainer = ReviewTrainer(
        DistilBertForSequenceClassification(config),
        arguments,
        train_dataset=Reviews(0, 240),
        eval_dataset=Reviews(1000, 60),
        data_collator=collate,
        compute_metrics=accuracy,
        callbacks=[tsnb.integrations.transformers.TsnbCallback()],
    )
    done = trainer.train()
    return {
        "loss": done.training_loss,
        "accuracy": trainer.evaluate()["eval_accuracy"],
        "seen": seen.digest(),
    }


if __name__ == "__main__":
    for lr in (0.003, 0.00075):
        print(json.dumps({"lr": lr, **train(lr)}))
