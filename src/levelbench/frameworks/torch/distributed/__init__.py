"""PyTorch's own distributed training as schemes: DDP and FSDP2."""
