// CUDA kernels on a CPU, one thread of a block after the other, each up to the next barrier. Where a barrier is missing a thread reads what a later one has not
// written yet, so that a race gives a wrong result each time and not now and then.
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <vector>

struct Index {
    int x, y, z;
};
static Index threadIdx, blockIdx;

#define __global__
#define __shared__ static
#define __launch_bounds__(threads)
#define alignas(bytes)

using std::max;
using std::min;

namespace emulation {

constexpr size_t kStack = 256 << 10;

struct Thread {
    ucontext_t context;
    Index index;
    bool done;
};

inline ucontext_t scheduler;
inline Thread* current;
inline std::function<void()> body;

inline void enter() {
    body();
    current->done = true;
}

// Runs every block of a launch.
inline void launch(Index grid, Index block, std::function<void()> kernel) {
    body = std::move(kernel);
    std::vector<Thread> threads(size_t(block.x) * block.y * block.z);
    std::vector<char> stacks(threads.size() * kStack);
    for (blockIdx.z = 0; blockIdx.z < grid.z; ++blockIdx.z)
        for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y)
            for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) {
                for (size_t i = 0; i < threads.size(); ++i) {
                    Thread& thread = threads[i];
                    thread.index = {int(i % block.x), int(i / block.x % block.y), int(i / block.x / block.y)};
                    thread.done = false;
                    getcontext(&thread.context);
                    thread.context.uc_stack.ss_sp = &stacks[i * kStack];
                    thread.context.uc_stack.ss_size = kStack;
                    thread.context.uc_link = &scheduler;
                    makecontext(&thread.context, enter, 0);
                }
                for (size_t running = threads.size(); running > 0;) {
                    size_t waiting = 0;
                    for (Thread& thread : threads) {
                        if (thread.done) continue;
                        current = &thread;
                        threadIdx = thread.index;
                        swapcontext(&scheduler, &thread.context);
                        waiting += !thread.done;
                    }
                    // A barrier is for all threads of a block or for none.
                    if (waiting != 0 && waiting != threads.size()) std::abort();
                    running = waiting;
                }
            }
}

inline std::vector<float> read(std::FILE* file, size_t count) {
    std::vector<float> values(count);
    if (std::fread(values.data(), sizeof(float), count, file) != count) std::abort();
    return values;
}

inline std::vector<float> spoilt(size_t count) { return std::vector<float>(count, std::numeric_limits<float>::quiet_NaN()); }

}  // namespace emulation

inline void __syncthreads() { swapcontext(&emulation::current->context, &emulation::scheduler); }
