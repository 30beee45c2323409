"""The GPU proof's kernels as PTX, made from nhc/core/data/gpu_proof.cu with NVIDIA's runtime compiler, which needs no
GPU.

`make ptx` writes nhc/core/data/gpu_proof_*.ptx anew; a test makes them again and compares. The compiler's version
decides
the PTX's, and the PTX's the oldest driver that takes it: 11.8 writes PTX 7.8 (driver 520), 12.4 PTX 8.4 (driver 550),
the first with products of fp8 (NVIDIA, PTX ISA: release history; CUDA release notes: driver versions).
"""
