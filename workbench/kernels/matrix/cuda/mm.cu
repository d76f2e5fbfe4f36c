// Matrix products C = A B: A is m x n, B n x k, all row-major float32.

#define TILE 16

// A thread for each element of C: row by row of A and column by column of B from global memory. Blocks of TILE x TILE.
extern "C" __global__ void mm_global(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
    const int row = (int)(blockIdx.y * TILE + threadIdx.y), column = (int)(blockIdx.x * TILE + threadIdx.x);
    if (row >= m || column >= k) return;
    float sum = 0.0f;
    for (int i = 0; i < n; ++i) sum += a[row * n + i] * b[i * k + column];
    c[row * k + column] = sum;
}

// A block goes through A and B in tiles that all of its threads have put into shared memory together.
extern "C" __global__ void mm_shared(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
    __shared__ float tile_a[TILE][TILE];
    __shared__ float tile_b[TILE][TILE];
    const int x = (int)threadIdx.x, y = (int)threadIdx.y;
    const int row = (int)blockIdx.y * TILE + y, column = (int)blockIdx.x * TILE + x;
    float sum = 0.0f;
    for (int start = 0; start < n; start += TILE) {
        tile_a[y][x] = row < m && start + x < n ? a[row * n + start + x] : 0.0f;
        tile_b[y][x] = start + y < n && column < k ? b[(start + y) * k + column] : 0.0f;
        __syncthreads();
        for (int i = 0; i < TILE; ++i) sum += tile_a[y][i] * tile_b[i][x];
        __syncthreads();
    }
    if (row < m && column < k) c[row * k + column] = sum;
}
