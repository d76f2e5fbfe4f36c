// The measuring side of the matrix programs: reads one request a line from standard input, writes one answer a line to standard output, both JSON.
//
//   {"id": 1, "kernel": "mm", "m": 512, "n": 64, "k": 32, "d1": 0.25, "d2": 1, "threads": 2, "seed": 7,
//    "warmup_s": 0.005, "batch_s": 5e-5, "repeats": 7, "at_least": 3, "limit_s": 0.5, "dump": 0}
//   {"id": 1, "status": "ok", "calls": 1, "times": [2.1e-5, ...]}
//   {"id": 1, "status": "run_error", "error": "out of memory"}
//
// A time is seconds a call. With "dump" the inputs and the last result go to the file named on the command line, as row-major float32, one matrix after the
// other. {"kernel": "ping"} is answered without work. A library's program includes this file and defines `make_task`.
#pragma once

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <new>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>
#ifdef __linux__
#include <sys/prctl.h>
#endif

namespace harness {

using Scalar = float;

// A row-major matrix with all its zeros: what inputs are made as and what results are handed back as.
struct Table {
    long rows = 0, columns = 0;
    std::vector<Scalar> values;
    Table(long rows_, long columns_) : rows(rows_), columns(columns_), values(static_cast<std::size_t>(rows_ * columns_)) {}
    Scalar& operator()(long i, long j) { return values[static_cast<std::size_t>(i * columns + j)]; }
    Scalar operator()(long i, long j) const { return values[static_cast<std::size_t>(i * columns + j)]; }
};

// One instance: `a` is the matrix, `b` MM's second matrix, MV's vector (one column) or MC's filter; below half density a matrix is to be held as a sparse one.
struct Problem {
    std::string kernel;
    long m = 1, n = 1, k = 1, r = 1, s = 1;
    int threads = 1;
    bool a_sparse = false, b_sparse = false;
    Table a{0, 0}, b{0, 0};
    // Rows and columns of what MC and MP give.
    long out_rows() const { return (m - r) / s + 1; }
    long out_columns() const { return (n - r) / s + 1; }
};

struct Task {
    virtual ~Task() = default;
    virtual void run() = 0;              // what is timed
    virtual Table result() const = 0;    // of the last run
};

struct Request {
    std::string kernel;
    std::map<std::string, double> numbers;
    double operator[](const std::string& name) const {
        const auto found = numbers.find(name);
        if (found == numbers.end()) throw std::invalid_argument("the request has no number " + name);
        return found->second;
    }
    long whole(const std::string& name) const {
        const double value = (*this)[name];
        if (!(value >= 1 && value <= 1e6) || value != std::floor(value)) throw std::invalid_argument(name + " is not a whole number from 1 to a million");
        return static_cast<long>(value);
    }
};

// A flat JSON object of numbers and of texts without escapes, which is all that the caller sends.
inline Request parse(const std::string& line) {
    Request request;
    std::size_t at = 0;
    const auto skip = [&] { at = std::min(line.find_first_not_of(" \t\r", at), line.size()); };
    const auto expect = [&](char c) {
        skip();
        if (at >= line.size() || line[at] != c) throw std::invalid_argument(std::string("request: expected ") + c + " at character " + std::to_string(at));
        ++at;
    };
    const auto text = [&] {
        expect('"');
        const std::size_t end = line.find('"', at);
        if (end == std::string::npos) throw std::invalid_argument("request: a text does not end");
        const std::string found = line.substr(at, end - at);
        at = end + 1;
        return found;
    };
    expect('{');
    for (skip(); at < line.size() && line[at] != '}'; skip()) {
        const std::string name = text();
        expect(':');
        skip();
        if (at < line.size() && line[at] == '"') {
            const std::string value = text();
            if (name == "kernel") request.kernel = value;
        } else {
            std::size_t used = 0;
            request.numbers[name] = std::stod(line.substr(at, 40), &used);
            at += used;
        }
        skip();
        if (at < line.size() && line[at] == ',') ++at;
    }
    expect('}');
    return request;
}

// `density` of the elements, rounded to a whole number of at least one, are not zero: uniform over [-1, 1), each set of places equally likely.
inline Table random_table(long rows, long columns, double density, std::mt19937_64& generator) {
    Table table(rows, columns);
    const auto uniform = [&] { return static_cast<double>(generator() >> 11) * 0x1p-53; };
    const double all = static_cast<double>(rows) * static_cast<double>(columns);
    double wanted = std::min(all, std::max(1.0, std::round(density * all))), left = all;
    for (Scalar& value : table.values) {
        if (left * uniform() < wanted) {
            do value = static_cast<Scalar>(2 * uniform() - 1);
            while (value == 0);
            --wanted;
        }
        --left;
    }
    return table;
}

inline Problem make_problem(const Request& request) {
    Problem problem;
    problem.kernel = request.kernel;
    problem.m = request.whole("m");
    problem.n = request.whole("n");
    problem.threads = static_cast<int>(request.whole("threads"));
    std::mt19937_64 generator(static_cast<std::uint64_t>(request["seed"]));
    const double d1 = request["d1"];
    problem.a_sparse = d1 < 0.5;
    problem.a = random_table(problem.m, problem.n, d1, generator);
    if (request.kernel == "mm") {
        problem.k = request.whole("k");
        problem.b_sparse = request["d2"] < 0.5;
        problem.b = random_table(problem.n, problem.k, request["d2"], generator);
    } else if (request.kernel == "mv") {
        problem.b = random_table(problem.n, 1, 1.0, generator);
    } else if (request.kernel == "mc" || request.kernel == "mp") {
        problem.r = request.whole("r");
        if (problem.r > std::min(problem.m, problem.n)) throw std::invalid_argument("the window r does not fit into the matrix");
        if (request.kernel == "mc") problem.b = random_table(problem.r, problem.r, 1.0, generator);
        else problem.s = request.whole("s");
    } else {
        throw std::invalid_argument("there is no kernel " + request.kernel);
    }
    return problem;
}

// Seconds that `calls` calls take together. The compiler may not move work across the clock's readings.
inline double seconds(Task& task, long calls) {
    const auto start = std::chrono::steady_clock::now();
    for (long i = 0; i < calls; ++i) {
        task.run();
        asm volatile("" ::: "memory");
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Times a call by the request's policy; `calls` becomes the number of calls that each time is the mean of.
inline std::vector<double> measure(Task& task, const Request& request, long& calls) {
    const double warmup = request["warmup_s"];
    double warm = seconds(task, 1);
    for (int i = 0; i < 1000000 && warm < warmup; ++i) warm += seconds(task, 1);
    // Calls shorter than the clock can tell are timed many at once.
    for (calls = 1; calls < (1L << 20) && seconds(task, calls) < request["batch_s"]; calls *= 2) {}
    std::vector<double> times;
    const std::size_t repeats = static_cast<std::size_t>(request.whole("repeats")), at_least = static_cast<std::size_t>(request.whole("at_least"));
    for (double total = 0; times.size() < repeats && (times.size() < at_least || total < request["limit_s"]); total += times.back() * static_cast<double>(calls))
        times.push_back(seconds(task, calls) / static_cast<double>(calls));
    return times;
}

inline void write(std::FILE* file, const Table& table) {
    if (std::fwrite(table.values.data(), sizeof(Scalar), table.values.size(), file) != table.values.size()) throw std::runtime_error("the dump cannot be written");
}

inline std::string quoted(const std::string& text) {
    std::string safe;
    for (const char c : text) safe += (c == '"' || c == '\\' || static_cast<unsigned char>(c) < 32) ? '\'' : c;
    return '"' + safe + '"';
}

template <class MakeTask>
std::string answer(const std::string& line, const char* dump, MakeTask make_task) {
    std::ostringstream out;
    out.precision(17);
    double id = -1;
    try {
        const Request request = parse(line);
        id = request["id"];
        out << "{\"id\": " << id << ", \"status\": ";
        if (request.kernel == "ping") return out.str() + "\"ok\"}";
        const Problem problem = make_problem(request);
        const std::unique_ptr<Task> task = make_task(problem);
        long calls = 1;
        const std::vector<double> times = measure(*task, request, calls);
        if (request["dump"] != 0) {
            const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(dump, "wb"), std::fclose);
            if (!file) throw std::runtime_error("the dump cannot be opened");
            write(file.get(), problem.a);
            write(file.get(), problem.b);
            write(file.get(), task->result());
            if (std::fflush(file.get()) != 0) throw std::runtime_error("the dump cannot be written");
        }
        out << "\"ok\", \"calls\": " << calls << ", \"times\": [";
        for (std::size_t i = 0; i < times.size(); ++i) out << (i ? ", " : "") << times[i];
        out << "]}";
        return out.str();
    } catch (const std::bad_alloc&) {
        return "{\"id\": " + std::to_string(static_cast<long>(id)) + ", \"status\": \"run_error\", \"error\": \"out of memory\"}";
    } catch (const std::exception& error) {
        return "{\"id\": " + std::to_string(static_cast<long>(id)) + ", \"status\": \"run_error\", \"error\": " + quoted(error.what()) + "}";
    }
}

template <class MakeTask>
int serve(int count, char** arguments, MakeTask make_task) {
#ifdef __linux__
    // A caller that is killed cannot end its child, which would go on disturbing the measurements of the next one.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    if (count != 2) {
        std::cerr << "usage: " << arguments[0] << " DUMP_FILE, with a request a line on standard input\n";
        return 2;
    }
    for (std::string line; std::getline(std::cin, line);) std::cout << answer(line, arguments[1], make_task) << std::endl;
    return 0;
}

}  // namespace harness
