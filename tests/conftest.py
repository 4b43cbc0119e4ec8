"""One thread per test process: the suite runs as two processes, and small tensors gain nothing from more."""

import torch

torch.set_num_threads(1)
