// Max pooling of a matrix A, m x n: windows of r x r with r of at most LARGEST, s apart with s of at most FARTHEST, none beyond the edge. Row-major float32.

#define TILE 16
#define LARGEST 5
#define FARTHEST 2

// A thread for each window, all from global memory. Blocks of TILE x TILE.
extern "C" __global__ void mp_global(const float* __restrict__ a, float* __restrict__ c, int m, int n, int r, int s) {
    const int rows = (m - r) / s + 1, columns = (n - r) / s + 1;
    const int row = (int)(blockIdx.y * TILE + threadIdx.y), column = (int)(blockIdx.x * TILE + threadIdx.x);
    if (row >= rows || column >= columns) return;
    const float* const window = a + row * s * n + column * s;
    float largest = window[0];
    for (int p = 0; p < r; ++p)
        for (int q = 0; q < r; ++q) largest = window[p * n + q] > largest ? window[p * n + q] : largest;
    c[row * columns + column] = largest;
}

// A block puts what its windows cover into shared memory first.
extern "C" __global__ void mp_shared(const float* __restrict__ a, float* __restrict__ c, int m, int n, int r, int s) {
    __shared__ float tile[(TILE - 1) * FARTHEST + LARGEST][(TILE - 1) * FARTHEST + LARGEST];
    const int rows = (m - r) / s + 1, columns = (n - r) / s + 1, edge = (TILE - 1) * s + r;
    const int x = (int)threadIdx.x, y = (int)threadIdx.y, top = (int)blockIdx.y * TILE * s, left = (int)blockIdx.x * TILE * s;
    for (int p = y; p < edge; p += TILE)
        for (int q = x; q < edge; q += TILE) tile[p][q] = top + p < m && left + q < n ? a[(top + p) * n + left + q] : 0.0f;
    __syncthreads();
    const int row = (int)blockIdx.y * TILE + y, column = (int)blockIdx.x * TILE + x;
    if (row >= rows || column >= columns) return;
    float largest = tile[y * s][x * s];
    for (int p = 0; p < r; ++p)
        for (int q = 0; q < r; ++q) largest = tile[y * s + p][x * s + q] > largest ? tile[y * s + p][x * s + q] : largest;
    c[row * columns + column] = largest;
}
