// Stands in for Halide's CUDA runtime, whose functions a program may replace (HalideRuntimeCuda.h): a compiled pipeline that runs with it launches nothing, and
// what it would have compiled and launched is written to standard output. So device code and launches are those that Halide's own host code asks for, and no GPU
// is needed to learn them.
//
// usage: program MARGIN N ...    for each N a pipeline of an input of (N + MARGIN) x (N + MARGIN) and an output of N x N float32, both without gaps
//
// The first line is JSON, a list for each N of its launches: [name, [blocks x, y, z], [threads x, y, z], [argument, ...], bytes of dynamic shared memory], where
// an argument is "input", "output" or a whole number. The device code follows, as Halide hands it to the driver.
#include <HalideRuntimeCuda.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

extern "C" int pipeline(halide_buffer_t* input, halide_buffer_t* output);

namespace {

halide_dimension_t dimensions[2][2];
halide_buffer_t input, output;
std::string code, launches;

void describe(halide_buffer_t& buffer, halide_dimension_t* dimension, int extent) {
    dimension[0] = halide_dimension_t(0, extent, 1);
    dimension[1] = halide_dimension_t(0, extent, extent);
    buffer = halide_buffer_t();
    buffer.type = halide_type_t(halide_type_float, 32);
    buffer.dimensions = 2;
    buffer.dim = dimension;
}

int fail(const char* what) {
    std::fprintf(stderr, "%s\n", what);
    std::exit(1);
}

std::string three(int x, int y, int z) { return "[" + std::to_string(x) + "," + std::to_string(y) + "," + std::to_string(z) + "]"; }

}  // namespace

extern "C" {

const halide_device_interface_t* halide_cuda_device_interface() { return nullptr; }
int halide_copy_to_device(void*, halide_buffer_t*, const halide_device_interface_t*) { return 0; }
void halide_cuda_finalize_kernels(void*, void*) {}

int halide_cuda_initialize_kernels(void*, void**, const char* source, int size) {
    const std::string given(source, strnlen(source, static_cast<std::size_t>(size)));
    if (!code.empty() && code != given) fail("two programs in one pipeline");
    code = given;
    return 0;
}

int halide_cuda_run(void*, void*, const char* name, int gx, int gy, int gz, int bx, int by, int bz, int shared, size_t sizes[], void* values[], int8_t buffers[]) {
    std::string arguments;
    for (int i = 0; sizes[i] != 0; ++i) {
        if (i) arguments += ",";
        std::int32_t number;
        if (buffers[i] && values[i] == &input)
            arguments += "\"input\"";
        else if (buffers[i] && values[i] == &output)
            arguments += "\"output\"";
        else if (buffers[i] || sizes[i] != sizeof number)
            return fail("an argument that is neither input nor output nor a whole number of 32 bits");
        else
            std::memcpy(&number, values[i], sizeof number), arguments += std::to_string(number);
    }
    if (launches.back() == ']') launches += ",";
    launches += "[\"" + std::string(name) + "\"," + three(gx, gy, gz) + "," + three(bx, by, bz) + ",[" + arguments + "]," + std::to_string(shared) + "]";
    return 0;
}
}

int main(int count, char** words) {
    std::string all;
    for (int i = 2; i < count; ++i) {
        const int n = std::atoi(words[i]);
        describe(input, dimensions[0], n + std::atoi(words[1]));
        describe(output, dimensions[1], n);
        launches = "[";
        if (pipeline(&input, &output) != 0) return fail("the pipeline does not run");
        all += (all.empty() ? "[" : ",") + launches + "]";
    }
    std::printf("%s]\n%s", all.c_str(), code.c_str());
    return 0;
}
