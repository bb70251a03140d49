"""The prequential loop and what stands around it: plan, records, checkpoints, ranks."""
