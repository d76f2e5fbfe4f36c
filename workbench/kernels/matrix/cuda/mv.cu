// Products of a matrix and a vector, y = A x: A is m x n, row-major float32.

#define ROWS 128
#define TILE 32
#define PARTS 8

// A thread for each row of A. Blocks of ROWS.
extern "C" __global__ void mv_global(const float* __restrict__ a, const float* __restrict__ x, float* __restrict__ y, int m, int n) {
    const int row = (int)(blockIdx.x * ROWS + threadIdx.x);
    if (row >= m) return;
    float sum = 0.0f;
    for (int i = 0; i < n; ++i) sum += a[row * n + i] * x[i];
    y[row] = sum;
}

// A block of TILE x PARTS threads for TILE rows. It goes through A in tiles of TILE x TILE in shared memory, so that neighbouring threads read neighbouring
// numbers; each row is summed by PARTS threads, whose sums are put together at the end.
extern "C" __global__ void mv_shared(const float* __restrict__ a, const float* __restrict__ x, float* __restrict__ y, int m, int n) {
    __shared__ float tile_a[TILE][TILE + 1];
    __shared__ float tile_x[TILE];
    __shared__ float sums[PARTS][TILE];
    const int column = (int)threadIdx.x, part = (int)threadIdx.y, first = (int)blockIdx.x * TILE;
    float sum = 0.0f;
    for (int start = 0; start < n; start += TILE) {
        const bool inside = start + column < n;
        if (part == 0) tile_x[column] = inside ? x[start + column] : 0.0f;
        for (int row = part; row < TILE; row += PARTS) tile_a[row][column] = inside && first + row < m ? a[(first + row) * n + start + column] : 0.0f;
        __syncthreads();
        for (int i = part; i < TILE; i += PARTS) sum += tile_a[column][i] * tile_x[i];
        __syncthreads();
    }
    sums[part][column] = sum;
    __syncthreads();
    if (part == 0 && first + column < m) {
        for (int other = 1; other < PARTS; ++other) sum += sums[other][column];
        y[first + column] = sum;
    }
}
