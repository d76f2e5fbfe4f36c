"""MetaTune's experiments: which measured tasks are tuned after learning from which, sessions on a cache that survives a kill, measures, and scorecard rows.

`pools` makes tasks of data sets, `experiments` says who learns from whom, `sessions` tunes one task, `engine` runs many, `measures` and `comparisons` make
numbers of them.
"""
