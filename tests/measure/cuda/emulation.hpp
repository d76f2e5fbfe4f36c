// What turns CUDA C into C++ for emulation.cpp: it includes nothing, so that compiling stays quick. A module knows of the emulation what it is given when it is
// loaded, and no more.
#pragma once

struct EmulatedIndex {
    unsigned x, y, z;
};
struct Emulated {
    EmulatedIndex thread, block, block_size, grid_size;
    void (*barrier)();
    long long (*clock)();
    void (*trap)();
};

#ifndef EMULATION
extern "C" {
Emulated* emulated;
}

#define threadIdx (emulated->thread)
#define blockIdx (emulated->block)
#define blockDim (emulated->block_size)
#define gridDim (emulated->grid_size)
#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)
#define __syncthreads() emulated->barrier()
#define __trap() emulated->trap()
#define clock64() emulated->clock()

template <class T> static inline T min(T a, T b) { return b < a ? b : a; }
template <class T> static inline T max(T a, T b) { return a < b ? b : a; }
static inline int __float_as_int(float value) {
    int bits;
    __builtin_memcpy(&bits, &value, 4);
    return bits;
}
static inline float __int_as_float(int bits) {
    float value;
    __builtin_memcpy(&value, &bits, 4);
    return value;
}
// One thread of the processor runs all threads of the device: every operation is atomic.
static inline int atomicMax(int* at, int value) {
    const int before = *at;
    *at = max(before, value);
    return before;
}
static inline int atomicMin(int* at, int value) {
    const int before = *at;
    *at = min(before, value);
    return before;
}
static inline int atomicAdd(int* at, int value) {
    const int before = *at;
    *at = before + value;
    return before;
}
#endif
