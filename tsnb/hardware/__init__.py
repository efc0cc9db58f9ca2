"""GPUs and cores: what there is and who uses it, where a trial is put, and batches that are shared on a GPU."""
