// The measure of what is timed: each workload computed directly, in double precision. `expected` is the result; `size` is, for each of its elements, the sum of
// the sizes of its terms, with which the error of a sum in single precision grows. Nothing here is in a hurry.

static __device__ int number() { return (int)(blockIdx.x * blockDim.x + threadIdx.x); }

static __device__ void keep(double* expected, float* size, int at, double sum, double terms) {
    expected[at] = sum;
    size[at] = (float)terms;
}

static __device__ double absolute(double value) { return value < 0 ? -value : value; }

// A B, with A of m x n and B of n x k.
extern "C" __global__ void reference_mm(const float* a, const float* b, double* expected, float* size, int m, int n, int k) {
    const int at = number();
    if (at >= m * k) return;
    const int row = at / k, column = at % k;
    double sum = 0, terms = 0;
    for (int i = 0; i < n; ++i) {
        const double term = (double)a[row * n + i] * (double)b[i * k + column];
        sum += term;
        terms += absolute(term);
    }
    keep(expected, size, at, sum, terms);
}

// The valid convolution of A, m x n, with B, r x r.
extern "C" __global__ void reference_mc(const float* a, const float* b, double* expected, float* size, int m, int n, int r) {
    const int columns = n - r + 1, at = number();
    if (at >= (m - r + 1) * columns) return;
    const int row = at / columns, column = at % columns;
    double sum = 0, terms = 0;
    for (int p = 0; p < r; ++p)
        for (int q = 0; q < r; ++q) {
            const double term = (double)a[(row + r - 1 - p) * n + column + r - 1 - q] * (double)b[p * r + q];
            sum += term;
            terms += absolute(term);
        }
    keep(expected, size, at, sum, terms);
}

// The largest number in each window of r x r of A, m x n, the windows s apart. There is nothing to round.
extern "C" __global__ void reference_mp(const float* a, double* expected, float* size, int m, int n, int r, int s) {
    const int columns = (n - r) / s + 1, at = number();
    if (at >= ((m - r) / s + 1) * columns) return;
    const int top = at / columns * s, left = at % columns * s;
    float largest = a[top * n + left];
    for (int i = 0; i < r * r; ++i) {
        const float value = a[(top + i / r) * n + left + i % r];
        largest = value > largest ? value : largest;
    }
    keep(expected, size, at, (double)largest, 0);
}

// The mean of 3 x 3 pixels of an image of (n + 2) x (n + 2), for each of n x n.
extern "C" __global__ void reference_blur(const float* image, double* expected, float* size, int n) {
    const int at = number();
    if (at >= n * n) return;
    const float* first = image + (at / n * (n + 2) + at % n);
    double sum = 0, terms = 0;
    for (int i = 0; i < 9; ++i) {
        const double pixel = (double)first[i / 3 * (n + 2) + i % 3];
        sum += pixel;
        terms += absolute(pixel);
    }
    keep(expected, size, at, sum / 9, terms / 9);
}

// Convolutions of n inputs of ci x h x w with co filters of ci / groups x kh x kw: steps of the filter sy, sx, steps within it dy, dx, zeros above py and to the
// left px, and an output of oh x ow. One-dimensional ones have h = kh = oh = 1.
extern "C" __global__ void reference_convolution(const float* data, const float* weight, double* expected, float* size, int n, int ci, int h, int w, int co, int kh,
                                                 int kw, int oh, int ow, int sy, int sx, int py, int px, int dy, int dx, int groups) {
    const int at = number();
    if (at >= n * co * oh * ow) return;
    const int x = at % ow, y = at / ow % oh, channel = at / (ow * oh) % co, image = at / (ow * oh * co);
    const int depth = ci / groups, first = channel / (co / groups) * depth;
    double sum = 0, terms = 0;
    for (int c = 0; c < depth; ++c)
        for (int p = 0; p < kh; ++p)
            for (int q = 0; q < kw; ++q) {
                const int row = y * sy - py + p * dy, column = x * sx - px + q * dx;
                if (row < 0 || row >= h || column < 0 || column >= w) continue;
                const double value = (double)data[((image * ci + first + c) * h + row) * w + column];
                const double term = value * (double)weight[((channel * depth + c) * kh + p) * kw + q];
                sum += term;
                terms += absolute(term);
            }
    keep(expected, size, at, sum, terms);
}

// Transposed convolutions: the same of an input whose elements lie sy, sx apart, with filters of ci x co x kh x kw; py, px are cut off the output.
extern "C" __global__ void reference_transposed(const float* data, const float* weight, double* expected, float* size, int n, int ci, int h, int w, int co, int kh,
                                                int kw, int oh, int ow, int sy, int sx, int py, int px) {
    const int at = number();
    if (at >= n * co * oh * ow) return;
    const int x = at % ow, y = at / ow % oh, channel = at / (ow * oh) % co, image = at / (ow * oh * co);
    double sum = 0, terms = 0;
    for (int c = 0; c < ci; ++c)
        for (int p = 0; p < kh; ++p)
            for (int q = 0; q < kw; ++q) {
                const int row = y + py - p, column = x + px - q;
                if (row < 0 || column < 0 || row % sy || column % sx || row / sy >= h || column / sx >= w) continue;
                const double value = (double)data[((image * ci + c) * h + row / sy) * w + column / sx];
                const double term = value * (double)weight[((c * co + channel) * kh + p) * kw + q];
                sum += term;
                terms += absolute(term);
            }
    keep(expected, size, at, sum, terms);
}
