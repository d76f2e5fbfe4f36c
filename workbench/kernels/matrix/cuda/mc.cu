// Valid convolutions of a matrix A, m x n, with a filter B, r x r with r of at most LARGEST: row-major float32, the filter turned by 180 degrees.

#define TILE 16
#define LARGEST 7

// A thread for each element of the result, all from global memory. Blocks of TILE x TILE.
extern "C" __global__ void mc_global(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int r) {
    const int rows = m - r + 1, columns = n - r + 1;
    const int row = (int)(blockIdx.y * TILE + threadIdx.y), column = (int)(blockIdx.x * TILE + threadIdx.x);
    if (row >= rows || column >= columns) return;
    float sum = 0.0f;
    for (int p = 0; p < r; ++p)
        for (int q = 0; q < r; ++q) sum += a[(row + p) * n + column + q] * b[(r - 1 - p) * r + r - 1 - q];
    c[row * columns + column] = sum;
}

// A block puts what its threads need of A, and the filter, into shared memory first.
extern "C" __global__ void mc_shared(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int r) {
    __shared__ float tile[TILE + LARGEST - 1][TILE + LARGEST - 1];
    __shared__ float filter[LARGEST * LARGEST];
    const int rows = m - r + 1, columns = n - r + 1, edge = TILE + r - 1;
    const int x = (int)threadIdx.x, y = (int)threadIdx.y, top = (int)blockIdx.y * TILE, left = (int)blockIdx.x * TILE;
    for (int p = y; p < edge; p += TILE)
        for (int q = x; q < edge; q += TILE) tile[p][q] = top + p < m && left + q < n ? a[(top + p) * n + left + q] : 0.0f;
    if (y * TILE + x < r * r) filter[y * TILE + x] = b[y * TILE + x];
    __syncthreads();
    if (top + y >= rows || left + x >= columns) return;
    float sum = 0.0f;
    for (int p = 0; p < r; ++p)
        for (int q = 0; q < r; ++q) sum += tile[y + p][x + q] * filter[(r - 1 - p) * r + r - 1 - q];
    c[(top + y) * columns + left + x] = sum;
}
