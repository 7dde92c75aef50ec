"""One thread: small products lose by more, and on busy cores they lose a hundredfold."""

import torch

torch.set_num_threads(1)
