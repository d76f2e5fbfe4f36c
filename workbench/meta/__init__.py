"""Meta-learning of networks: few-shot tasks, supervised pre-training, MAML and online adaptation. Knows networks, tensors and losses only."""
