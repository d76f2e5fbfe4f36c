// What measuring needs on the device beside the programs that are measured: inputs from a seed, the comparison of a result, and a gate that holds the stream
// while work is put behind it.

// Bits of x, mixed so that every bit of x and of the key changes about half of them. `mix` of inputs.py is the same.
static __device__ unsigned mix(unsigned x, unsigned key) {
    x = (x ^ key) * 0x7FEB352Du;
    x = (x ^ (x >> 15)) * 0x846CA68Bu;
    return x ^ (x >> 16);
}

// A place in a random order of the numbers below n: four Feistel rounds permute the numbers of 2 * half bits, and a number that leaves the range goes round again.
static __device__ unsigned place(unsigned i, unsigned n, int half, unsigned key) {
    const unsigned mask = (1u << half) - 1;
    do {
        unsigned left = i >> half, right = i & mask;
        for (unsigned round = 0; round < 4; ++round) {
            const unsigned next = left ^ (mix(right, key + round) & mask);
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}

// `nonzero` of the n numbers are not zero, each set of places equally likely: odd multiples of 2^-24 between -1 and 1.
extern "C" __global__ void values(float* out, int n, int nonzero, int half, int seed) {
    const int step = (int)(gridDim.x * blockDim.x);
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < n; i += step) {
        const bool there = nonzero >= n || place((unsigned)i, (unsigned)n, half, (unsigned)seed * 8u) < (unsigned)nonzero;
        const int odd = 2 * (int)(mix((unsigned)i, (unsigned)seed * 8u + 7u) >> 8) - 16777215;
        out[i] = there ? (float)odd / 16777216.0f : 0.0f;
    }
}

// Compares a result with what is expected: the error of an element is |result - expected| / size, where size is the sum of its terms' sizes (1 if that is 0).
// found[0] is the largest error (bits of a float), found[1] the number of elements whose error is above the tolerance (bits of a float) or no number,
// found[2] the first of them. found is to be 0, 0, n before.
extern "C" __global__ void compare(const float* result, const double* expected, const float* size, int* found, int n, int tolerance) {
    const float allowed = __int_as_float(tolerance), infinity = __int_as_float(0x7F800000);
    const int step = (int)(gridDim.x * blockDim.x);
    int wrong = 0, first = n;
    float largest = 0.0f;
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < n; i += step) {
        const double difference = (double)result[i] - expected[i];
        float error = (float)((difference < 0 ? -difference : difference) / (size[i] > 0.0f ? (double)size[i] : 1.0));
        if (!(error < infinity)) error = infinity;
        if (error > allowed) {
            ++wrong;
            first = i < first ? i : first;
        }
        largest = error > largest ? error : largest;
    }
    atomicMax(found, __float_as_int(largest));
    if (wrong > 0) {
        atomicAdd(found + 1, wrong);
        atomicMin(found + 2, first);
    }
}

// Ends when *open is not 0, or after so many cycles.
extern "C" __global__ void gate(const volatile int* open, int cycles) {
    const long long start = clock64();
    while (*open == 0 && clock64() - start < (long long)cycles) {
    }
}

// The least that a launch takes.
extern "C" __global__ void nothing(int unused) {}
