// CUDA's driver and NVRTC without a GPU, for tests: the calls that the product makes, under their names.
//
// NVRTC compiles CUDA C as C++ with g++ into a shared object, whose bytes are the "machine code" that the driver loads. Kernels are really executed, thread by
// thread; threads that meet at a barrier are fibers of one thread. Work is done where a device would have done it by then, at a synchronisation or a copy, so
// what a kernel does wrong shows as late as there: an address that belongs to nobody is CUDA_ERROR_ILLEGAL_ADDRESS, and after that the context is lost. PTX is
// turned into C++ (ptx.py) when it is loaded. Memory is as large as EMULATED_MEMORY_BYTES says. EMULATED_FOLDER is where programs are built, and those built
// before are found again.
#define EMULATION
#include "emulation.hpp"

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#define API extern "C" int

namespace {

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_IMAGE = 200, INVALID_PTX = 218, NOT_FOUND = 500, ILLEGAL_ADDRESS = 700, ILLEGAL_INSTRUCTION = 715 };

// ------------------------------------------------------------------------------------------------ executing a kernel
// A kernel's parameters are pointers and whole numbers: all fit into a machine word, and the calling convention passes more of them than it takes without harm.
using Word = std::uint64_t;
using Kernel = void (*)(Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word);
constexpr int MOST_ARGUMENTS = 20;

struct Launch {
    Kernel kernel;
    EmulatedIndex grid, block;
    Word arguments[MOST_ARGUMENTS];
};

long long nanoseconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

void trap() { raise(SIGILL); }

Emulated current;
const Launch* running;

struct Fiber {
    ucontext_t context;
    unsigned thread;
    bool done;
};
std::vector<Fiber*> fibers;
ucontext_t scheduler;
Fiber* active;
unsigned next_thread, threads_of_block;
constexpr std::size_t STACK = 1 << 20;

void select_thread(unsigned thread) {
    const EmulatedIndex size = current.block_size;
    current.thread = {thread % size.x, thread / size.x % size.y, thread / (size.x * size.y)};
}

// A fiber runs thread after thread until one waits at a barrier: then another fiber goes on with the next thread.
void fiber_main() {
    Fiber* self = active;
    while (next_thread < threads_of_block) {
        self->thread = next_thread++;
        select_thread(self->thread);
        const Word* a = running->arguments;
        running->kernel(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15], a[16], a[17], a[18], a[19]);
    }
    self->done = true;
    swapcontext(&self->context, &scheduler);
}

void barrier() { swapcontext(&active->context, &scheduler); }

void resume(Fiber* fiber) {
    active = fiber;
    select_thread(fiber->thread);
    swapcontext(&scheduler, &fiber->context);
}

void run_block() {
    next_thread = 0;
    std::vector<Fiber*> waiting;
    while (next_thread < threads_of_block) {
        const std::size_t used = waiting.size();
        if (used == fibers.size()) {
            Fiber* fresh = new Fiber;
            void* stack = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            fresh->context.uc_stack.ss_sp = stack;
            fresh->context.uc_stack.ss_size = STACK;
            fibers.push_back(fresh);
        }
        Fiber* fiber = fibers[used];
        void* const stack = fiber->context.uc_stack.ss_sp;
        getcontext(&fiber->context);
        fiber->context.uc_stack.ss_sp = stack;
        fiber->context.uc_stack.ss_size = STACK;
        fiber->context.uc_link = nullptr;
        fiber->done = false;
        fiber->thread = next_thread;
        makecontext(&fiber->context, fiber_main, 0);
        resume(fiber);
        if (fiber->done) break;
        waiting.push_back(fiber);
    }
    while (!waiting.empty()) {
        std::vector<Fiber*> left;
        for (Fiber* fiber : waiting) {
            resume(fiber);
            if (!fiber->done) left.push_back(fiber);
        }
        waiting.swap(left);
    }
}

void run(const Launch& launch) {
    running = &launch;
    current.block_size = launch.block;
    current.grid_size = launch.grid;
    threads_of_block = launch.block.x * launch.block.y * launch.block.z;
    for (unsigned z = 0; z < launch.grid.z; ++z)
        for (unsigned y = 0; y < launch.grid.y; ++y)
            for (unsigned x = 0; x < launch.grid.x; ++x) {
                current.block = {x, y, z};
                run_block();
            }
}

// ------------------------------------------------------------------------------------------------ the stream
struct Event {
    long long nanoseconds = -1;
};
struct Operation {
    enum { LAUNCH, FILL, RECORD } kind;
    Launch launch;
    unsigned* address;
    std::size_t count;
    unsigned word;
    Event* event;

    void run() const {
        if (kind == LAUNCH) ::run(launch);
        if (kind == FILL)
            for (std::size_t i = 0; i < count; ++i) address[i] = word;
        if (kind == RECORD) event->nanoseconds = nanoseconds();
    }
};
std::vector<Operation> stream;
int lost = SUCCESS;
sigjmp_buf fault;

void on_fault(int signal) { siglongjmp(fault, signal); }

int drain() {
    if (lost) return lost;
    struct sigaction mine {}, before[3];
    mine.sa_handler = on_fault;
    mine.sa_flags = SA_NODEFER;
    const int signals[3] = {SIGSEGV, SIGBUS, SIGILL};
    for (int i = 0; i < 3; ++i) sigaction(signals[i], &mine, &before[i]);
    const int caught = sigsetjmp(fault, 1);
    if (caught == 0) {
        for (std::size_t i = 0; i < stream.size(); ++i) stream[i].run();
    } else {
        lost = caught == SIGILL ? ILLEGAL_INSTRUCTION : ILLEGAL_ADDRESS;
    }
    stream.clear();
    for (int i = 0; i < 3; ++i) sigaction(signals[i], &before[i], nullptr);
    return lost;
}

// ------------------------------------------------------------------------------------------------ memory and modules
// Every buffer ends where a page ends that nobody may touch.
struct Allocation {
    void* base;
    std::size_t mapped, bytes;
};
std::map<Word, Allocation> allocations;
std::size_t allocated;

std::size_t memory_bytes() {
    const char* text = std::getenv("EMULATED_MEMORY_BYTES");
    return text ? std::strtoull(text, nullptr, 10) : std::size_t{1} << 30;
}

std::string folder() {
    const char* named = std::getenv("EMULATED_FOLDER");
    return named ? named : "/tmp";
}

struct Module {
    void* handle;
};

bool read_file(const std::string& path, std::string& text) {
    std::FILE* file = std::fopen(path.c_str(), "rb");
    if (!file) return false;
    char part[65536];
    text.clear();
    while (const std::size_t bytes = std::fread(part, 1, sizeof part, file)) text.append(part, bytes);
    std::fclose(file);
    return true;
}

bool write_file(const std::string& path, const std::string& text) {
    std::FILE* file = std::fopen(path.c_str(), "wb");
    if (!file) return false;
    const bool whole = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    return std::fclose(file) == 0 && whole;
}

// The shared object that g++ makes of C++, built once; False with what it says where it is no C++.
bool compile(const std::string& text, std::string& log, std::string& image) {
    const std::string name = folder() + "/" + std::to_string(std::hash<std::string>{}(text)), mine = name + "." + std::to_string(getpid());
    if (read_file(name + ".so", image)) return true;
    write_file(mine + ".cpp", "#include \"" EMULATION_HEADER "\"\n#line 1 \"kernel.cu\"\n" + text);
    const int status = std::system(("g++ -O1 -w -shared -fPIC -o " + mine + ".so " + mine + ".cpp 2> " + mine + ".log").c_str());
    read_file(mine + ".log", log);
    unlink((mine + ".cpp").c_str());
    unlink((mine + ".log").c_str());
    if (status != 0) return false;
    std::rename((mine + ".so").c_str(), (name + ".so").c_str());
    return read_file(name + ".so", image);
}

bool compile_ptx(const std::string& ptx, std::string& image) {
    const std::string mine = folder() + "/ptx-" + std::to_string(getpid());
    std::string text, log;
    write_file(mine + ".ptx", ptx);
    const int status = std::system((EMULATION_PTX " " + mine + ".ptx " + mine + ".txt").c_str());
    const bool made = status == 0 && read_file(mine + ".txt", text) && compile(text, log, image);
    unlink((mine + ".ptx").c_str());
    unlink((mine + ".txt").c_str());
    if (!made) std::fprintf(stderr, "%s", log.c_str());
    return made;
}

}  // namespace

// ------------------------------------------------------------------------------------------------ the driver
API cuInit(unsigned) {
    current.barrier = barrier;
    current.clock = nanoseconds;
    current.trap = trap;
    return SUCCESS;
}
API cuDriverGetVersion(int* version) { return *version = 13000, SUCCESS; }
API cuDeviceGetCount(int* count) {
    const char* text = std::getenv("EMULATED_DEVICES");
    return *count = text ? std::atoi(text) : 1, SUCCESS;
}
API cuDeviceGet(int* device, int number) { return *device = number, SUCCESS; }
API cuDeviceGetName(char* name, int size, int) { return std::snprintf(name, static_cast<std::size_t>(size), "Emulated GPU (R) 9000"), SUCCESS; }
API cuDeviceTotalMem_v2(std::size_t* bytes, int) { return *bytes = memory_bytes(), SUCCESS; }
API cuDeviceGetAttribute(int* value, int attribute, int) {
    static const std::map<int, int> known = {{1, 1024},    {8, 49152},      {10, 32},    {12, 65536}, {13, 1500000}, {16, 4},       {36, 1000000},
                                             {37, 1024},   {38, 1 << 20},   {39, 2048},  {75, 9},     {76, 0},       {81, 233472},  {97, 232448}};
    const auto found = known.find(attribute);
    return found == known.end() ? INVALID_VALUE : (*value = found->second, SUCCESS);
}
API cuDevicePrimaryCtxRetain(void** context, int) { return *context = &current, SUCCESS; }
API cuCtxSetCurrent(void*) { return SUCCESS; }
API cuCtxSynchronize() { return drain(); }

API cuModuleLoadData(Module** module, const char* image) {
    if (lost) return lost;
    std::string code;
    if (std::strncmp(image, "EMULATED", 8) == 0) {
        // The size is not known: the image is followed by its length, as the compiler below writes it.
        std::size_t bytes;
        std::memcpy(&bytes, image + 8, sizeof bytes);
        code.assign(image + 16, bytes);
    } else if (std::strstr(image, ".version") == nullptr) {
        return INVALID_IMAGE;
    } else if (!compile_ptx(image, code)) {
        return INVALID_PTX;
    }
    static int loaded = 0;  // what is loaded under a name is not read again
    const std::string path = folder() + "/module-" + std::to_string(getpid()) + "-" + std::to_string(++loaded);
    if (!write_file(path, code)) return INVALID_IMAGE;
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    unlink(path.c_str());
    if (!handle) return std::fprintf(stderr, "%s\n", dlerror()), INVALID_IMAGE;
    *static_cast<Emulated**>(dlsym(handle, "emulated")) = &current;
    *module = new Module{handle};
    return SUCCESS;
}
API cuModuleUnload(Module* module) {
    const int status = drain();
    dlclose(module->handle);
    delete module;
    return status;
}
API cuModuleGetFunction(void** function, Module* module, const char* name) {
    if (lost) return lost;
    *function = dlsym(module->handle, name);
    return *function ? SUCCESS : NOT_FOUND;
}
API cuFuncGetAttribute(int* value, int attribute, void*) {
    static const std::map<int, int> known = {{0, 1024}, {1, 64}, {3, 0}, {4, 32}};
    return *value = known.at(attribute), lost;
}

API cuMemAlloc_v2(Word* address, std::size_t bytes) {
    if (lost) return lost;
    if (bytes == 0) return INVALID_VALUE;
    if (allocated + bytes > memory_bytes()) return OUT_OF_MEMORY;
    const std::size_t page = 4096, body = (bytes + page - 1) / page * page, mapped = body + page;
    char* base = static_cast<char*>(mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (base == MAP_FAILED) return OUT_OF_MEMORY;
    mprotect(base + body, page, PROT_NONE);
    *address = reinterpret_cast<Word>(base + body - (bytes + 15) / 16 * 16);
    allocations[*address] = {base, mapped, bytes};
    allocated += bytes;
    return SUCCESS;
}
API cuMemFree_v2(Word address) {
    const int status = drain();
    const auto found = allocations.find(address);
    if (found == allocations.end()) return INVALID_VALUE;
    munmap(found->second.base, found->second.mapped);
    allocated -= found->second.bytes;
    allocations.erase(found);
    return status;
}
API cuMemHostAlloc(void** address, std::size_t bytes, unsigned) { return *address = std::calloc(1, bytes), lost; }
API cuMemHostGetDevicePointer_v2(Word* there, void* host, unsigned) { return *there = reinterpret_cast<Word>(host), lost; }
API cuMemcpyHtoD_v2(Word to, const void* from, std::size_t bytes) {
    if (const int status = drain()) return status;
    return std::memcpy(reinterpret_cast<void*>(to), from, bytes), SUCCESS;
}
API cuMemcpyDtoH_v2(void* to, Word from, std::size_t bytes) {
    if (const int status = drain()) return status;
    return std::memcpy(to, reinterpret_cast<void*>(from), bytes), SUCCESS;
}
API cuMemsetD32Async(Word address, unsigned word, std::size_t count, void*) {
    if (lost) return lost;
    stream.push_back({Operation::FILL, {}, reinterpret_cast<unsigned*>(address), count, word, nullptr});
    return SUCCESS;
}

API cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void*, void** arguments, void*) {
    if (lost) return lost;
    const bool fits = bx * static_cast<Word>(by) * bz <= 1024 && bz <= 64 && shared <= 49152 && bx && by && bz && gx && gy && gz && gy < 65536 && gz < 65536;
    if (!fits) return INVALID_VALUE;
    Launch launch{reinterpret_cast<Kernel>(function), {gx, gy, gz}, {bx, by, bz}, {}};
    // The end of the arguments is not told: the product keeps them in one array, so that the place of each follows that of the one before.
    for (int i = 0; i < MOST_ARGUMENTS; ++i) {
        if (i && arguments[i] != static_cast<char*>(arguments[i - 1]) + 8) break;
        std::memcpy(&launch.arguments[i], arguments[i], 8);
    }
    stream.push_back({Operation::LAUNCH, launch, nullptr, 0, 0, nullptr});
    return SUCCESS;
}

API cuEventCreate(Event** event, unsigned) { return *event = new Event, lost; }
API cuEventRecord(Event* event, void*) {
    if (lost) return lost;
    stream.push_back({Operation::RECORD, {}, nullptr, 0, 0, event});
    return SUCCESS;
}
API cuEventElapsedTime(float* milliseconds, Event* start, Event* end) {
    if (start->nanoseconds < 0 || end->nanoseconds < 0) return INVALID_VALUE;
    return *milliseconds = static_cast<float>(static_cast<double>(end->nanoseconds - start->nanoseconds) * 1e-6), lost;
}
API cuGetErrorName(int code, const char** name) {
    static const std::map<int, const char*> known = {{INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},     {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
                                                     {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"},     {INVALID_PTX, "CUDA_ERROR_INVALID_PTX"},
                                                     {NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
                                                     {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {ILLEGAL_INSTRUCTION, "CUDA_ERROR_ILLEGAL_INSTRUCTION"}};
    const auto found = known.find(code);
    return found == known.end() ? INVALID_VALUE : (*name = found->second, SUCCESS);
}

// ------------------------------------------------------------------------------------------------ the compiler
namespace {
struct Program {
    std::string source, log, image;
};
}  // namespace

API nvrtcVersion(int* major, int* minor) { return *major = 13, *minor = 0, 0; }
API nvrtcCreateProgram(Program** program, const char* source, const char*, int, const char* const*, const char* const*) {
    return *program = new Program{source, "", ""}, 0;
}
API nvrtcCompileProgram(Program* program, int count, const char* const* options) {
    std::string architecture;
    for (int i = 0; i < count; ++i)
        if (std::string(options[i]).rfind("-arch=", 0) == 0) architecture = options[i] + 6;
    if (architecture.rfind("sm_", 0) != 0) return program->log = "error: invalid value for --gpu-architecture: " + architecture, 5;
    std::string text = program->source;
    // CUDA's order of these specifiers is free, C++'s is not.
    for (std::size_t at = 0; (at = text.find("__shared__ alignas(", at)) != std::string::npos;) {
        const std::size_t end = text.find(')', at) + 1;
        text.replace(at, end - at, text.substr(at + 11, end - at - 11) + " __shared__");
        at = end;
    }
    if (!compile(text, program->log, program->image)) return 6;
    const std::size_t bytes = program->image.size();
    program->image = "EMULATED" + std::string(reinterpret_cast<const char*>(&bytes), sizeof bytes) + program->image;
    return 0;
}
API nvrtcGetProgramLogSize(Program* program, std::size_t* size) { return *size = program->log.size() + 1, 0; }
API nvrtcGetProgramLog(Program* program, char* text) { return std::memcpy(text, program->log.c_str(), program->log.size() + 1), 0; }
API nvrtcGetCUBINSize(Program* program, std::size_t* size) { return *size = program->image.size(), 0; }
API nvrtcGetCUBIN(Program* program, char* image) { return std::memcpy(image, program->image.data(), program->image.size()), 0; }
API nvrtcDestroyProgram(Program** program) { return delete *program, *program = nullptr, 0; }
