"""Cost models: recipes fit many problems at once; a fitted model predicts seconds and the mean and spread of log throughput."""
