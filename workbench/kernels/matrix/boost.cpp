// NN+C's matrix kernels in Boost uBLAS: row-major, one thread.
#include "harness.hpp"

#include <boost/numeric/ublas/matrix.hpp>
#include <boost/numeric/ublas/matrix_proxy.hpp>
#include <boost/numeric/ublas/matrix_sparse.hpp>
#include <boost/numeric/ublas/operation.hpp>
#include <boost/numeric/ublas/operation_sparse.hpp>
#include <boost/numeric/ublas/vector.hpp>
#include <boost/numeric/ublas/vector_proxy.hpp>

#include <algorithm>
#include <limits>

namespace {

namespace ublas = boost::numeric::ublas;
using harness::Problem;
using harness::Scalar;
using harness::Table;
using harness::Task;
using Size = std::size_t;
using Dense = ublas::matrix<Scalar>;
using Sparse = ublas::compressed_matrix<Scalar>;
using Vector = ublas::vector<Scalar>;

template <class Matrix>
Matrix hold(const Table& table);

template <>
Dense hold<Dense>(const Table& table) {
    Dense matrix(static_cast<Size>(table.rows), static_cast<Size>(table.columns));
    std::copy(table.values.begin(), table.values.end(), matrix.data().begin());
    return matrix;
}

template <>
Sparse hold<Sparse>(const Table& table) {
    const auto filled = table.values.size() - static_cast<Size>(std::count(table.values.begin(), table.values.end(), Scalar{0}));
    Sparse matrix(static_cast<Size>(table.rows), static_cast<Size>(table.columns), filled);
    for (long i = 0; i < table.rows; ++i)
        for (long j = 0; j < table.columns; ++j)
            if (table(i, j) != 0) matrix.push_back(static_cast<Size>(i), static_cast<Size>(j), table(i, j));
    matrix.complete_index1_data();
    return matrix;
}

Table give(const Dense& matrix) {
    Table table(static_cast<long>(matrix.size1()), static_cast<long>(matrix.size2()));
    std::copy(matrix.data().begin(), matrix.data().end(), table.values.begin());
    return table;
}

// Calls visit(j, value) for the elements of a row that are not zero.
template <class Visit>
void visit_row(const Sparse& matrix, Size i, Visit visit) {
    for (Size at = matrix.index1_data()[i]; at < matrix.index1_data()[i + 1]; ++at) visit(matrix.index2_data()[at], matrix.value_data()[at]);
}

// C = A B with a dense C: at least one of the two is dense. axpy_prod looks each element of a sparse factor up, so those rows are walked here.
template <class A, class B>
struct Product final : Task {
    A a;
    B b;
    Dense c;
    explicit Product(const Problem& p) : a(hold<A>(p.a)), b(hold<B>(p.b)), c(static_cast<Size>(p.m), static_cast<Size>(p.k)) {}
    void run() override;
    Table result() const override { return give(c); }
};

template <>
void Product<Dense, Dense>::run() {
    ublas::axpy_prod(a, b, c, true);
}

template <>
void Product<Sparse, Dense>::run() {
    for (Size i = 0; i < c.size1(); ++i) {
        ublas::matrix_row<Dense> out(c, i);
        out.assign(ublas::zero_vector<Scalar>(c.size2()));
        visit_row(a, i, [&](Size j, Scalar value) { out.plus_assign(value * ublas::row(b, j)); });
    }
}

template <>
void Product<Dense, Sparse>::run() {
    for (Size i = 0; i < c.size1(); ++i) {
        ublas::row(c, i).assign(ublas::zero_vector<Scalar>(c.size2()));
        for (Size j = 0; j < a.size2(); ++j) visit_row(b, j, [&, factor = a(i, j)](Size l, Scalar value) { c(i, l) += factor * value; });
    }
}

struct SparseProduct final : Task {
    Sparse a, b, c;
    explicit SparseProduct(const Problem& p) : a(hold<Sparse>(p.a)), b(hold<Sparse>(p.b)), c(static_cast<Size>(p.m), static_cast<Size>(p.k)) {}
    void run() override { ublas::sparse_prod(a, b, c, true); }
    Table result() const override { return give(Dense(c)); }
};

template <class A>
struct VectorProduct final : Task {
    A a;
    Vector x, y;
    explicit VectorProduct(const Problem& p) : a(hold<A>(p.a)), x(static_cast<Size>(p.n)), y(static_cast<Size>(p.m)) {
        std::copy(p.b.values.begin(), p.b.values.end(), x.begin());
    }
    void run() override;
    Table result() const override {
        Table table(static_cast<long>(y.size()), 1);
        std::copy(y.begin(), y.end(), table.values.begin());
        return table;
    }
};

// The quicker of uBLAS's two ways for each.
template <>
void VectorProduct<Dense>::run() {
    ublas::noalias(y) = ublas::prod(a, x);
}

template <>
void VectorProduct<Sparse>::run() {
    ublas::axpy_prod(a, x, y, true);
}

// Valid convolution: C(i, j) is the sum of A(i + p, j + q) W(r-1-p, r-1-q). `filter` is W turned around.
template <class A>
struct Convolution final : Task {
    A a;
    Dense filter, c;
    explicit Convolution(const Problem& p) : a(hold<A>(p.a)), filter(hold<Dense>(p.b)), c(static_cast<Size>(p.out_rows()), static_cast<Size>(p.out_columns())) {
        std::reverse(filter.data().begin(), filter.data().end());
    }
    void run() override;
    Table result() const override { return give(c); }
};

template <>
void Convolution<Dense>::run() {
    for (Size i = 0; i < c.size1(); ++i) {
        ublas::matrix_row<Dense> out(c, i);
        out.assign(ublas::zero_vector<Scalar>(c.size2()));
        for (Size p = 0; p < filter.size1(); ++p)
            for (Size q = 0; q < filter.size2(); ++q) {
                ublas::matrix_row<Dense> in(a, i + p);
                out.plus_assign(filter(p, q) * ublas::vector_range<ublas::matrix_row<Dense>>(in, ublas::range(q, q + c.size2())));
            }
    }
}

template <>
void Convolution<Sparse>::run() {
    for (Size i = 0; i < c.size1(); ++i) {
        ublas::row(c, i).assign(ublas::zero_vector<Scalar>(c.size2()));
        for (Size p = 0; p < filter.size1(); ++p)
            visit_row(a, i + p, [&](Size j, Scalar value) {
                const Size last = std::min(filter.size2() - 1, j);
                for (Size q = j < c.size2() ? 0 : j - c.size2() + 1; q <= last; ++q) c(i, j - q) += value * filter(p, q);
            });
    }
}

// Maxima of the r x r windows that lie s apart, none reaching over the edge.
template <class A>
struct Pooling final : Task {
    A a;
    Dense c;
    Size r, s;
    explicit Pooling(const Problem& p)
        : a(hold<A>(p.a)), c(static_cast<Size>(p.out_rows()), static_cast<Size>(p.out_columns())), r(static_cast<Size>(p.r)), s(static_cast<Size>(p.s)) {}
    void run() override;
    Table result() const override { return give(c); }
};

template <>
void Pooling<Dense>::run() {
    Vector highest(a.size2());  // over the r rows of the window
    for (Size i = 0; i < c.size1(); ++i) {
        ublas::noalias(highest) = ublas::row(a, i * s);
        for (Size p = 1; p < r; ++p)
            for (Size j = 0; j < a.size2(); ++j) highest(j) = std::max(highest(j), a(i * s + p, j));
        for (Size j = 0; j < c.size2(); ++j) {
            Scalar best = highest(j * s);
            for (Size q = 1; q < r; ++q) best = std::max(best, highest(j * s + q));
            c(i, j) = best;
        }
    }
}

template <>
void Pooling<Sparse>::run() {
    std::vector<Size> filled(c.size2());  // elements of each window that are not zero
    for (Size i = 0; i < c.size1(); ++i) {
        std::fill(filled.begin(), filled.end(), Size{0});
        for (Size j = 0; j < c.size2(); ++j) c(i, j) = -std::numeric_limits<Scalar>::infinity();
        for (Size p = 0; p < r; ++p)
            visit_row(a, i * s + p, [&](Size j, Scalar value) {
                const Size last = std::min(c.size2() - 1, j / s);
                for (Size window = j < r ? 0 : (j - r) / s + 1; window <= last; ++window) {
                    c(i, window) = std::max(c(i, window), value);
                    ++filled[window];
                }
            });
        for (Size j = 0; j < c.size2(); ++j)
            if (filled[j] < r * r) c(i, j) = std::max(c(i, j), Scalar{0});
    }
}

std::unique_ptr<Task> make_task(const Problem& p) {
    if (p.threads != 1) throw std::invalid_argument("uBLAS has no threads; ask for 1");
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
