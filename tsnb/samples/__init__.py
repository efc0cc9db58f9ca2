"""Samples that outlive their batch: those that are kept once they were prepared.

| module | what it owns |
|---|---|
| `choice` | which samples to keep in how much memory; when to give memory back (pure) |
| `memory` | the memory that keeps them: one for all workers, without a name |
| `records` | a sample as bytes, and back |
| `draws`, `cut` | draws from the global generators; where a sample's fixed part ends and its random part begins |
| `learning` | the dataset that workers see: it measures, proves and keeps samples, and takes kept ones |
| `keeper` | the producer's side: which phase it is, memory given back under pressure |
"""
