"""Measuring on this machine: build a program, run it in a child process, time it by one policy, and keep every attempt in the store."""
