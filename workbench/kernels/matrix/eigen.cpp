// NN+C's matrix kernels in Eigen: row-major, rows of the result shared out over OpenMP threads in equal parts. Dense products share out as Eigen sees fit.
#include "harness.hpp"

#include <Eigen/Dense>
#include <Eigen/Sparse>
#include <omp.h>

#include <limits>

namespace {

using harness::Problem;
using harness::Scalar;
using harness::Table;
using harness::Task;
using Index = Eigen::Index;
using Dense = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Sparse = Eigen::SparseMatrix<Scalar, Eigen::RowMajor>;
using Vector = Eigen::Matrix<Scalar, Eigen::Dynamic, 1>;
using Row = Eigen::Array<Scalar, 1, Eigen::Dynamic>;

// Calls work(part, first row, number of rows) on each of `threads` threads, leaving out empty parts.
template <class Work>
void share_rows(Index rows, int threads, Work work) {
    if (threads == 1) {
        work(0, Index{0}, rows);
        return;
    }
#pragma omp parallel num_threads(threads)
    {
        const Index parts = omp_get_num_threads(), part = omp_get_thread_num();
        const Index first = rows * part / parts, last = rows * (part + 1) / parts;
        if (first < last) work(static_cast<int>(part), first, last - first);
    }
}

template <class Matrix>
Matrix hold(const Table& table);

template <>
Dense hold<Dense>(const Table& table) {
    return Eigen::Map<const Dense>(table.values.data(), table.rows, table.columns);
}

template <>
Sparse hold<Sparse>(const Table& table) {
    Sparse matrix(table.rows, table.columns);
    for (Index i = 0; i < table.rows; ++i) {
        matrix.startVec(i);
        for (Index j = 0; j < table.columns; ++j)
            if (table(i, j) != 0) matrix.insertBack(i, j) = table(i, j);
    }
    matrix.finalize();
    return matrix;
}

Table give(const Dense& matrix) {
    Table table(matrix.rows(), matrix.cols());
    Eigen::Map<Dense>(table.values.data(), table.rows, table.columns) = matrix;
    return table;
}

// C = A B with a dense C: at least one of the two is dense.
template <class A, class B>
struct Product final : Task {
    A a;
    B b;
    Dense c;
    int threads;
    explicit Product(const Problem& p) : a(hold<A>(p.a)), b(hold<B>(p.b)), c(p.m, p.k), threads(p.threads) {}
    void run() override {
        share_rows(c.rows(), threads, [&](int, Index first, Index rows) { c.middleRows(first, rows).noalias() = a.middleRows(first, rows) * b; });
    }
    Table result() const override { return give(c); }
};

template <>
void Product<Dense, Dense>::run() {
    Eigen::setNbThreads(threads);
    c.noalias() = a * b;
}

// C = A B of sparse matrices gives a sparse C: each thread multiplies its rows, then the parts are joined.
struct SparseProduct final : Task {
    Sparse a, b, c;
    std::vector<Sparse> parts;
    explicit SparseProduct(const Problem& p) : a(hold<Sparse>(p.a)), b(hold<Sparse>(p.b)), c(p.m, p.k), parts(static_cast<std::size_t>(p.threads)) {}
    void run() override {
        const int threads = static_cast<int>(parts.size());
        if (threads == 1) {
            c = a * b;
            return;
        }
        for (Sparse& part : parts) part.resize(0, 0);
        share_rows(a.rows(), threads, [&](int part, Index first, Index rows) { parts[static_cast<std::size_t>(part)] = a.middleRows(first, rows) * b; });
        Index filled = 0, row = 0;
        for (const Sparse& part : parts) filled += part.nonZeros();
        c.resize(a.rows(), b.cols());
        c.resizeNonZeros(filled);
        filled = 0;
        for (const Sparse& part : parts) {
            std::copy_n(part.innerIndexPtr(), part.nonZeros(), c.innerIndexPtr() + filled);
            std::copy_n(part.valuePtr(), part.nonZeros(), c.valuePtr() + filled);
            for (Index i = 0; i < part.rows(); ++i) c.outerIndexPtr()[row++] = static_cast<int>(filled + part.outerIndexPtr()[i]);
            filled += part.nonZeros();
        }
        c.outerIndexPtr()[row] = static_cast<int>(filled);
    }
    Table result() const override { return give(Dense(c)); }
};

template <class A>
struct VectorProduct final : Task {
    A a;
    Vector x, y;
    int threads;
    explicit VectorProduct(const Problem& p) : a(hold<A>(p.a)), x(hold<Dense>(p.b)), y(p.m), threads(p.threads) {}
    void run() override {
        share_rows(y.size(), threads, [&](int, Index first, Index rows) { y.segment(first, rows).noalias() = a.middleRows(first, rows) * x; });
    }
    Table result() const override { return give(y); }
};

// Valid convolution: C(i, j) is the sum of A(i + p, j + q) W(r-1-p, r-1-q). `filter` is W turned around.
template <class A>
struct Convolution final : Task {
    A a;
    Dense filter, c;
    int threads;
    explicit Convolution(const Problem& p) : a(hold<A>(p.a)), filter(hold<Dense>(p.b).reverse()), c(p.out_rows(), p.out_columns()), threads(p.threads) {}
    void run() override {
        share_rows(c.rows(), threads, [&](int, Index first, Index rows) {
            for (Index i = first; i < first + rows; ++i) line(i);
        });
    }
    void line(Index i);
    Table result() const override { return give(c); }
};

template <>
void Convolution<Dense>::line(Index i) {
    auto out = c.row(i);
    out.setZero();
    for (Index p = 0; p < filter.rows(); ++p)
        for (Index q = 0; q < filter.cols(); ++q) out += filter(p, q) * a.row(i + p).segment(q, c.cols());
}

template <>
void Convolution<Sparse>::line(Index i) {
    auto out = c.row(i);
    out.setZero();
    for (Index p = 0; p < filter.rows(); ++p)
        for (Sparse::InnerIterator element(a, i + p); element; ++element) {
            const Index j = element.col(), last = std::min(filter.cols() - 1, j);
            for (Index q = std::max(Index{0}, j - c.cols() + 1); q <= last; ++q) out(j - q) += element.value() * filter(p, q);
        }
}

// Maxima of the r x r windows that lie s apart, none reaching over the edge.
template <class A>
struct Pooling final : Task {
    A a;
    Dense c;
    Index r, s;
    int threads;
    explicit Pooling(const Problem& p) : a(hold<A>(p.a)), c(p.out_rows(), p.out_columns()), r(p.r), s(p.s), threads(p.threads) {}
    void run() override;
    Table result() const override { return give(c); }
};

template <>
void Pooling<Dense>::run() {
    share_rows(c.rows(), threads, [&](int, Index first, Index rows) {
        Row highest(a.cols());  // over the r rows of the window
        for (Index i = first; i < first + rows; ++i) {
            highest = a.row(i * s).array();
            for (Index p = 1; p < r; ++p) highest = highest.max(a.row(i * s + p).array());
            auto out = c.row(i).array();
            out = highest(Eigen::seqN(0, c.cols(), s));
            for (Index q = 1; q < r; ++q) out = out.max(highest(Eigen::seqN(q, c.cols(), s)));
        }
    });
}

template <>
void Pooling<Sparse>::run() {
    share_rows(c.rows(), threads, [&](int, Index first, Index rows) {
        std::vector<int> filled(static_cast<std::size_t>(c.cols()));  // elements of each window that are not zero
        for (Index i = first; i < first + rows; ++i) {
            auto out = c.row(i);
            out.setConstant(-std::numeric_limits<Scalar>::infinity());
            std::fill(filled.begin(), filled.end(), 0);
            for (Index p = 0; p < r; ++p)
                for (Sparse::InnerIterator element(a, i * s + p); element; ++element) {
                    const Index j = element.col(), last = std::min(c.cols() - 1, j / s);
                    for (Index window = j < r ? 0 : (j - r) / s + 1; window <= last; ++window) {
                        out(window) = std::max(out(window), element.value());
                        ++filled[static_cast<std::size_t>(window)];
                    }
                }
            for (Index window = 0; window < c.cols(); ++window)
                if (filled[static_cast<std::size_t>(window)] < r * r) out(window) = std::max(out(window), Scalar{0});
        }
    });
}

std::unique_ptr<Task> make_task(const Problem& p) {
    Eigen::setNbThreads(1);  // the rows are shared out already
    if (p.kernel == "mm") {
        if (p.a_sparse && p.b_sparse) return std::make_unique<SparseProduct>(p);
        if (p.a_sparse) return std::make_unique<Product<Sparse, Dense>>(p);
        if (p.b_sparse) return std::make_unique<Product<Dense, Sparse>>(p);
        return std::make_unique<Product<Dense, Dense>>(p);
    }
    if (p.kernel == "mv") return p.a_sparse ? std::unique_ptr<Task>(new VectorProduct<Sparse>(p)) : std::make_unique<VectorProduct<Dense>>(p);
    if (p.kernel == "mc") return p.a_sparse ? std::unique_ptr<Task>(new Convolution<Sparse>(p)) : std::make_unique<Convolution<Dense>>(p);
    return p.a_sparse ? std::unique_ptr<Task>(new Pooling<Sparse>(p)) : std::make_unique<Pooling<Dense>>(p);
}

}  // namespace

int main(int count, char** arguments) { return harness::serve(count, arguments, make_task); }
