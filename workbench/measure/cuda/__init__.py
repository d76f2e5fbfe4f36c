"""Measuring on a GPU of NVIDIA's, which may be in another machine: a bundle of programs goes there, its measurements come back.

What runs there (`python -m workbench.measure.cuda.run`) imports the standard library, numpy and pyarrow only, and runs on Python 3.10.
"""
