"""Cost models: fit, predict and update over one contract."""
