"""PyTorch's own distributed training as schemes: DDP, FSDP2, and Horovod where it is installed."""
